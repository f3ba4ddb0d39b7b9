//! Small histories at random, on a clock of a few ticks, so that everything meets.

pub(crate) mod naive;

use fastrand::Rng;
use fencelock_testkit::history::{Event, GateAnswer, ReleaseAnswer, What};

/// The last tick.
pub(crate) const END: u64 = 24;

#[derive(Clone, Debug)]
pub(crate) struct Acquire {
    pub(crate) called: u64,
    pub(crate) answered: u64,
    pub(crate) token: Option<u64>,
    /// Calls of `is_held`, answers and deadlines.
    pub(crate) asked: Vec<(u64, bool, u64)>,
    /// When a loss was told, and whether it was a revocation.
    pub(crate) lost: Option<(u64, bool)>,
    pub(crate) release: Option<(u64, Option<(u64, bool)>)>,
    /// Entering, then writes: called, answered, value.
    pub(crate) steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) called: u64,
    pub(crate) answered: Option<(u64, GateAnswer)>,
    pub(crate) value: Option<u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct Small {
    pub(crate) acquires: Vec<Acquire>,
    pub(crate) faults: Vec<(u64, Option<u64>)>,
    pub(crate) forced: Vec<u64>,
    pub(crate) count: Option<u64>,
}

impl Small {
    /// Acquires, tokens and beliefs only.
    pub(crate) fn random(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let count = random.usize(1..=5);
        // Half of them are made right first and then shaken a little, so that both kinds come.
        let orderly = random.bool();
        let mut now = 0;
        let acquires = (0..count).map(|at| {
            let (called, answered, last) = if orderly {
                let (from, to) = (now, now + random.u64(0..4));
                now = to;
                let early = random.u64(0..5);
                (from.saturating_sub(early), from + random.u64(0..=to - from), to)
            } else {
                let called = random.u64(0..END / 2);
                let answered = called + random.u64(0..6);
                (called, answered, answered + random.u64(0..6))
            };
            let answered = answered.max(called);
            let token = if orderly && random.u8(0..12) > 0 { at as u64 + 1 } else { random.u64(1..6) };
            let asked = if random.u8(0..4) == 0 || last < answered {
                Vec::new()
            } else {
                vec![(random.u64(answered..=last), true, u64::MAX), (last, true, u64::MAX)]
            };
            let token = (random.u8(0..8) > 0).then_some(token);
            let asked = if token.is_some() { asked } else { Vec::new() };
            Acquire { called, answered, token, asked, lost: None, release: None, steps: Vec::new() }
        });
        Self { acquires: acquires.collect(), faults: Vec::new(), forced: Vec::new(), count: None }
    }

    /// With losses, releases, gates and faults too.
    pub(crate) fn random_with_all(seed: u64) -> Self {
        let mut small = Self::random(seed);
        let mut random = Rng::with_seed(seed ^ 0x5eed);
        for acquire in small.acquires.iter_mut().filter(|acquire| acquire.token.is_some()) {
            let from = acquire.answered;
            if random.bool() {
                acquire.asked.push((random.u64(from..from + 6), random.bool(), from + random.u64(3..9)));
                acquire.asked.sort_unstable();
            }
            if random.u8(0..4) == 0 {
                acquire.lost = Some((random.u64(from..from + 6), random.bool()));
            } else if random.bool() {
                let called = random.u64(from..from + 6);
                let answer = random.bool().then(|| (called + random.u64(0..3), random.bool()));
                acquire.release = Some((called, answer));
            }
            for at in 0..random.u64(0..4) {
                let called = from + random.u64(0..6);
                let answers = [GateAnswer::Accepted, GateAnswer::Accepted, GateAnswer::Stale, GateAnswer::Unknown];
                let answer = answers.get(random.usize(0..4)).copied().unwrap_or(GateAnswer::Unknown);
                let answered = (random.u8(0..6) > 0).then(|| (called + random.u64(0..3), answer));
                let value = (at > 0).then(|| random.u64(1..5));
                // One of a kind at a time, as a worker does.
                if acquire.steps.iter().all(|step| step.value != value) {
                    acquire.steps.push(Step { called, answered, value });
                }
            }
        }
        for _ in 0..random.u64(0..3) {
            let from = random.u64(0..END);
            small.faults.push((from, (random.u8(0..5) > 0).then(|| from + random.u64(0..5))));
        }
        if random.u8(0..4) == 0 {
            small.forced.push(random.u64(0..END));
        }
        small.count = random.bool().then(|| random.u64(0..5));
        small
    }

    /// As workers would have written it. Ticks are even times, and faults come
    /// between them, so that nothing is both in a fault and beside it.
    pub(crate) fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        let resource = || "r".into();
        for (at, a) in self.acquires.iter().enumerate() {
            let mut push = |when, what| events.push(Event { at: when * 2, worker: 1, hold: at as u32 + 1, what });
            push(a.called, What::Acquire { lock: "l".into() });
            push(a.answered, a.token.map_or(What::NotGranted { why: "held".into() }, |token| What::Granted { token }));
            for (asked, held, deadline) in a.asked.iter().copied() {
                let (asked_at, deadline) = (asked * 2, deadline.saturating_mul(2));
                let held =
                    if held { What::Believed { asked: asked_at, deadline } } else { What::Doubted { asked: asked_at } };
                push(asked, held);
            }
            if let Some((when, revoked)) = a.lost {
                push(when, What::Lost { reason: if revoked { "revoked" } else { "expired" }.into() });
            }
            if let Some((called, answer)) = a.release {
                push(called, What::Release);
                if let Some((when, freed)) = answer {
                    let answer = if freed { ReleaseAnswer::Freed } else { ReleaseAnswer::Lost };
                    push(when, What::Released { answer });
                }
            }
            for step in &a.steps {
                let (called, answered) = match step.value {
                    None => (What::Enter { resource: resource() }, None),
                    Some(value) => (What::Write { resource: resource(), value }, Some(value)),
                };
                push(step.called, called);
                if let Some((when, answer)) = step.answered {
                    push(
                        when,
                        match answered {
                            None => What::Entered { resource: resource(), answer },
                            Some(value) => What::Wrote { resource: resource(), value, answer },
                        },
                    );
                }
            }
        }
        let mut world = |at, what| events.push(Event { at, worker: 0, hold: 0, what });
        for (number, (from, to)) in self.faults.iter().enumerate() {
            world(*from * 2 + 1, What::Fault { fault: number as u32, kind: "f".into() });
            if let Some(to) = to {
                world(*to * 2 + 1, What::Healed { fault: number as u32 });
            }
        }
        self.forced.iter().for_each(|at| world(*at * 2, What::Forced { lock: "l".into() }));
        world(
            END * 4,
            self.count.map_or(What::Fault { fault: 99, kind: "end".into() }, |value| What::FinalCount {
                resource: resource(),
                value,
            }),
        );
        events.sort_by_key(|event| event.at);
        events
    }
}
