//! A client: acquires, counts once behind the gate, holds for a while, releases, again and again.

use super::{Flaw, Message, TTL, World};
use fencelock_testkit::history::{GateAnswer, ReleaseAnswer, What};
use std::collections::BTreeMap;

/// How long an answer is waited for.
const PATIENCE: u64 = 60;
/// How long a lock is waited for.
const WAIT: u64 = 1_500;

enum State {
    Idle { until: u64 },
    Asking { id: u64, sent: u64, again_at: u64 },
    Waiting { id: u64, token: u64, again_at: u64 },
    Holding(Holding),
    Releasing { id: u64, until: u64 },
}

struct Holding {
    id: u64,
    token: u64,
    deadline: u64,
    renew_at: u64,
    until: u64,
    lost: bool,
    write_at: Option<(u64, u64)>,
}

pub(crate) struct Client {
    me: usize,
    ids: u64,
    hold: u64,
    state: State,
    gives_up_at: u64,
    /// Which hold each id was granted for.
    granted: BTreeMap<u64, u64>,
    pub(crate) paused_until: u64,
    /// How long it has been suspended in all.
    slept: u64,
}

impl Client {
    pub(crate) fn new(me: usize) -> Self {
        Self {
            me,
            ids: 0,
            hold: 0,
            state: State::Idle { until: 0 },
            gives_up_at: 0,
            granted: BTreeMap::new(),
            paused_until: 0,
            slept: 0,
        }
    }

    fn clock(&self, world: &World) -> u64 {
        if world.flaw == Flaw::ClockStopsInSuspend { world.now - self.slept } else { world.now }
    }

    fn new_id(&mut self) -> u64 {
        self.ids += 1;
        self.ids * 10 + self.me as u64
    }

    /// Asks whether it still holds, and writes the answer down.
    pub(crate) fn look(&mut self, world: &mut World) {
        let clock = self.clock(world);
        let State::Holding(holding) = &mut self.state else { return };
        let asked = world.now * 1_000_000;
        if clock < holding.deadline {
            let deadline = (holding.deadline + self.slept) * 1_000_000;
            holding.lost = false;
            world.record(self.me, self.hold, What::Believed { asked, deadline });
        } else if !holding.lost {
            holding.lost = true;
            world.record(self.me, self.hold, What::Doubted { asked });
        }
        if holding.lost && world.flaw != Flaw::RenewalRevives {
            self.state = State::Idle { until: world.now + 5 };
        }
    }

    pub(crate) fn step(&mut self, world: &mut World) {
        if self.paused_until > world.now {
            return;
        }
        if world.random.u16(0..600) == 0 {
            let pause = world.random.u64(20..300);
            (self.paused_until, self.slept) = (world.now + pause, self.slept + pause);
            return;
        }
        if world.now.is_multiple_of(4) {
            self.look(world);
        }
        let (me, now, clock) = (self.me, world.now, self.clock(world));
        match &mut self.state {
            State::Idle { until } if *until <= now => {
                self.hold += 1;
                self.gives_up_at = now + WAIT;
                world.record(me, self.hold, What::Acquire { lock: "l".into() });
                let id = self.new_id();
                self.ask(id, world);
            }
            State::Asking { id, .. } | State::Waiting { id, .. } if self.gives_up_at <= now => {
                world.send(Message::Undo { id: *id });
                world.record(me, self.hold, What::NotGranted { why: "timeout".into() });
                self.state = State::Idle { until: now + 1 };
            }
            State::Asking { id, again_at, .. } if *again_at <= now => {
                let old = *id;
                world.send(Message::Undo { id: old });
                let id = self.new_id();
                self.ask(id, world);
            }
            State::Waiting { id, again_at, .. } if *again_at <= now => {
                let id = *id;
                self.ask(id, world);
            }
            State::Holding(holding) => {
                if holding.renew_at <= clock {
                    holding.renew_at = clock + TTL / 3;
                    world.send(Message::Renew { client: me, id: holding.id, sent: clock });
                }
                if let Some((_, value)) = holding.write_at.take_if(|(at, _)| *at <= now) {
                    let (id, token) = (holding.id, holding.token);
                    world.record(me, self.hold, What::Write { resource: "counter".into(), value });
                    world.send(Message::Write { client: me, id, token, value });
                }
                if holding.until <= now {
                    let id = holding.id;
                    world.record(me, self.hold, What::Release);
                    world.send(Message::Release { client: me, id });
                    self.state = State::Releasing { id, until: now + PATIENCE };
                }
            }
            State::Releasing { id, until } if *until <= now => {
                world.record(me, self.hold, What::Released { answer: ReleaseAnswer::Unknown });
                world.send(Message::Undo { id: *id });
                self.state = State::Idle { until: now + 1 };
            }
            _ => {}
        }
    }

    fn ask(&mut self, id: u64, world: &mut World) {
        let sent = self.clock(world);
        world.send(Message::Acquire { client: self.me, id });
        self.state = State::Asking { id, sent, again_at: world.now + PATIENCE };
    }

    pub(crate) fn handle(&mut self, message: Message, world: &mut World) {
        let (me, now, clock) = (self.me, world.now, self.clock(world));
        match (message, &mut self.state) {
            (Message::Granted { id, token, .. }, State::Asking { id: asked, sent, .. }) if id == *asked => {
                let counted = if world.flaw == Flaw::DeadlineFromReceipt { clock } else { *sent };
                if counted + TTL - 2 < clock + TTL / 10 {
                    world.send(Message::Undo { id });
                    let id = self.new_id();
                    self.ask(id, world);
                } else {
                    self.granted(id, token, counted, world);
                }
            }
            (Message::Contended { id, token, .. }, State::Asking { id: asked, .. }) if id == *asked => {
                self.state = State::Waiting { id, token, again_at: now + 40 };
            }
            (Message::Told { .. }, State::Waiting { id, token, .. }) => {
                let (id, token) = (*id, *token);
                if world.flaw == Flaw::NoReReadAfterTheWait {
                    self.granted(id, token, clock, world);
                } else {
                    self.ask(id, world);
                }
            }
            (Message::Renewed { id, sent, ok, .. }, State::Holding(holding)) if id == holding.id => {
                if ok {
                    holding.deadline = holding.deadline.max(sent + TTL - 2);
                } else if !holding.lost {
                    world.record(me, self.hold, What::Lost { reason: "revoked".into() });
                    self.state = State::Idle { until: now + 5 };
                }
            }
            (Message::Released { id, ok, .. }, State::Releasing { id: asked, .. }) if id == *asked => {
                let answer = if ok { ReleaseAnswer::Freed } else { ReleaseAnswer::Lost };
                world.record(me, self.hold, What::Released { answer });
                self.state = State::Idle { until: now + world.random.u64(1..20) };
            }
            (Message::Entered { id, ok, value, .. }, State::Holding(holding)) if id == holding.id => {
                let answer = if ok { GateAnswer::Accepted } else { GateAnswer::Stale };
                world.record(me, self.hold, What::Entered { resource: "counter".into(), answer });
                holding.write_at = ok.then(|| (now + world.random.u64(1..20), value + 1));
            }
            (Message::Wrote { id, ok, value, .. }, _) => {
                let answer = if ok { GateAnswer::Accepted } else { GateAnswer::Stale };
                // Also if its hold is long over.
                let hold = self.granted.get(&id).copied().unwrap_or_default();
                world.record(me, hold, What::Wrote { resource: "counter".into(), value, answer });
            }
            _ => {}
        }
    }

    fn granted(&mut self, id: u64, token: u64, counted: u64, world: &mut World) {
        self.granted.insert(id, self.hold);
        world.record(self.me, self.hold, What::Granted { token });
        world.record(self.me, self.hold, What::Enter { resource: "counter".into() });
        world.send(Message::Enter { client: self.me, id, token });
        let (deadline, renew_at) = (counted + TTL - 2, self.clock(world) + TTL / 3);
        let until = world.now + world.random.u64(20..250);
        self.state = State::Holding(Holding { id, token, deadline, renew_at, until, lost: false, write_at: None });
        self.look(world);
    }
}
