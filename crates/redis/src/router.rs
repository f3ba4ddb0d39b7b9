//! Which server has a lock: always the same one, or by slot.

use crate::config::{Address, Deployment, RedisConfig};
use crate::failure::{Failure, Next};
use crate::link::{Events, Link, failed, lock};
use crate::open::Opener;
use crate::replicas::{self, Replicas};
use crate::script::{Call, LuaScript};
use crate::slots::{SlotMap, Slots, slots};
use fencelock_core::Claim;
use redis::{Cmd, Value};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

/// How often a request is sent on before its failure is told.
const HOPS: u32 = 6;
/// What lies between two looks at who is master.
const PAUSE: Duration = Duration::from_millis(25);
/// What lies between asking one node for the slots and asking the next as well.
const APART: Duration = Duration::from_millis(40);

pub(crate) struct Router {
    config: Arc<RedisConfig>,
    events: Events,
    links: Mutex<HashMap<Address, Link>>,
    /// The one link, except in a Cluster.
    master: Option<Link>,
    replicas: Replicas,
    map: Mutex<SlotMap>,
    /// Every node of the Cluster that was named last, masters and replicas, and those of the configuration.
    nodes: Mutex<BTreeSet<Address>>,
    /// Only one asks for the slots at a time.
    asking: tokio::sync::Mutex<Option<Instant>>,
    refreshing: AtomicBool,
    turn: AtomicUsize,
    itself: Weak<Self>,
}

/// An answer, and how many replicas acknowledged what was written for it.
pub(crate) type Acknowledged = (Value, Result<u32, Failure>);

impl Router {
    pub(crate) fn new(config: &Arc<RedisConfig>, events: Events) -> Arc<Self> {
        let (master, seeds) = match &config.deployment {
            Deployment::Cluster(seeds) => (None, seeds.iter().cloned().collect()),
            Deployment::Standalone(_) | Deployment::Sentinel { .. } => {
                (Some(Link::new(Opener::to_master(config), events.clone())), BTreeSet::new())
            }
        };
        let (config, replicas, nodes) = (Arc::clone(config), Replicas::new(config), Mutex::new(seeds));
        let (links, map, asking, refreshing, turn) = Default::default();
        Arc::new_cyclic(|itself| Self {
            config,
            events,
            links,
            master,
            replicas,
            map,
            nodes,
            asking,
            refreshing,
            turn,
            itself: Weak::clone(itself),
        })
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.master.is_none()
    }

    fn link_to(&self, address: &Address) -> Link {
        let open = || Link::new(Opener::to(&self.config, address.clone()), self.events.clone());
        lock(&self.links).entry(address.clone()).or_insert_with(open).clone()
    }

    /// The link to whoever has `slot`, if that is known.
    pub(crate) fn known(&self, slot: u16) -> Option<Link> {
        self.master.clone().or_else(|| lock(&self.map).find(slot).map(|address| self.link_to(&address)))
    }

    /// The link to whoever has `slot`.
    pub(crate) async fn route(&self, slot: u16, deadline: Instant) -> Result<Link, Failure> {
        Ok(self.route_with_address(slot, deadline).await?.0)
    }

    async fn route_with_address(&self, slot: u16, deadline: Instant) -> Result<(Link, Option<Address>), Failure> {
        if let Some(master) = &self.master {
            return Ok((master.clone(), None));
        }
        let known = lock(&self.map).find(slot);
        let address = match known {
            Some(address) => address,
            None => {
                self.ask_for_slots(deadline).await?;
                lock(&self.map).find(slot).ok_or_else(|| Failure::not_reached("no node of the Cluster has the slot"))?
            }
        };
        Ok((self.link_to(&address), Some(address)))
    }

    /// Every master there is.
    pub(crate) async fn masters(&self, deadline: Instant) -> Result<Vec<Link>, Failure> {
        if let Some(master) = &self.master {
            return Ok(vec![master.clone()]);
        }
        self.ask_for_slots(deadline).await?;
        let masters = lock(&self.map).masters();
        Ok(masters.iter().map(|address| self.link_to(address)).collect())
    }

    async fn ask_for_slots(&self, deadline: Instant) -> Result<(), Failure> {
        let asked = Instant::now();
        let Ok(mut last) = timeout_at(deadline, self.asking.lock()).await else {
            return Err(Failure::not_reached("the Cluster's slots are being asked for"));
        };
        if last.is_some_and(|last| last >= asked) {
            return Ok(());
        }
        let (map, nodes) = self.ask_nodes(deadline).await?;
        let masters = map.masters();
        *lock(&self.map) = map;
        lock(&self.links).retain(|address, _| masters.contains(address));
        let seeds = match &self.config.deployment {
            Deployment::Cluster(seeds) => seeds.as_slice(),
            Deployment::Standalone(_) | Deployment::Sentinel { .. } => &[],
        };
        *lock(&self.nodes) = nodes.into_iter().chain(seeds.iter().cloned()).collect();
        *last = Some(Instant::now());
        Ok(())
    }

    /// The first answer of any node, master or replica. The next one is asked
    /// without waiting for one that hangs.
    async fn ask_nodes(&self, deadline: Instant) -> Result<Slots, Failure> {
        let nodes: Vec<_> = lock(&self.nodes).iter().cloned().collect();
        // Masters that serve us know best; of the others a different one comes first each time.
        let serving: Vec<_> =
            lock(&self.links).iter().filter(|(_, link)| link.is_up()).map(|(at, _)| at.clone()).collect();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % nodes.len().max(1);
        let others = nodes.iter().cycle().skip(turn).take(nodes.len()).filter(|node| !serving.contains(node));
        let order: Vec<_> = serving.iter().chain(others).cloned().collect();
        let mut asked = JoinSet::new();
        for (at, node) in order.into_iter().enumerate() {
            let opener = Opener::to(&self.config, node.clone());
            asked.spawn(async move {
                sleep(APART * u32::try_from(at).unwrap_or(u32::MAX)).await;
                let mut command = redis::cmd("CLUSTER");
                command.arg("SLOTS");
                slots(&opener.ask(&command).await?, &node)
            });
        }
        let mut failure = Failure::not_reached("no node of the Cluster answered");
        while let Ok(Some(answer)) = timeout_at(deadline, asked.join_next()).await {
            match answer {
                Ok(Ok((map, _))) if map.is_empty() => failure = Failure::of_answer("CLUSTERDOWN", ""),
                Ok(Ok(found)) => return Ok(found),
                // What a node refuses says more than that another is not there.
                Ok(Err(failed)) if !failure.is_refusal() => failure = failed,
                Ok(Err(_)) | Err(_) => {}
            }
        }
        Err(failure)
    }

    /// Asks for the slots in the background. What is known serves until there is an answer.
    pub(crate) fn refresh(&self) {
        if !self.is_cluster() || self.refreshing.swap(true, Ordering::SeqCst) {
            return;
        }
        let (itself, deadline) = (Weak::clone(&self.itself), Instant::now() + self.config.request_timeout);
        tokio::spawn(async move {
            if let Some(router) = itself.upgrade() {
                let _ = router.ask_for_slots(deadline).await;
                sleep(PAUSE).await;
                router.refreshing.store(false, Ordering::SeqCst);
            }
        });
    }

    /// Runs a script on keys of one slot, wherever they are by now.
    ///
    /// Sent on only when it surely was not done where it was sent before.
    pub(crate) async fn run<K: AsRef<[u8]> + Sync, A: AsRef<[u8]> + Sync>(
        &self,
        slot: u16,
        script: &LuaScript,
        keys: &[K],
        args: &[A],
        deadline: Instant,
    ) -> Result<Value, Failure> {
        self.call(slot, script, &(keys, args), deadline).await
    }

    /// The same, however it is put together.
    pub(crate) async fn call(
        &self,
        slot: u16,
        script: &LuaScript,
        call: &(impl Call + Sync),
        deadline: Instant,
    ) -> Result<Value, Failure> {
        Ok(self.run_and_wait(slot, script, call, 0, (deadline, None), ()).await?.0)
    }

    /// As [`run`](Self::run), and waits until so many replicas have what it wrote;
    /// with more than none on a connection of its own. The claim is that whose call waits for it. `trip` is dropped when there is an
    /// answer, or what was not done has to be sent on, which may take long.
    pub(crate) async fn run_and_wait(
        &self,
        slot: u16,
        script: &LuaScript,
        call: &(impl Call + Sync),
        replicas: u32,
        (deadline, of): (Instant, Option<&Claim>),
        trip: impl Send,
    ) -> Result<Acknowledged, Failure> {
        let mut trip = Some(trip);
        let (mut in_full, mut ask, mut hop) = (false, None, 0);
        loop {
            let command = if in_full { script.in_full(call) } else { script.by_digest(call) };
            let failure = match self.send(slot, &command, ask.take(), replicas, (deadline, of)).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            drop(trip.take());
            let pauses = matches!(failure.next, Next::TryAgain | Next::Rediscover);
            // A slot that is being moved is waited for until the end.
            hop += u32::from(failure.next != Next::TryAgain);
            let over = hop >= HOPS || Instant::now() + if pauses { PAUSE } else { Duration::ZERO } >= deadline;
            if !failure.settled || failure.next == Next::GiveUp || over {
                return Err(failure);
            }
            match failure.next.clone() {
                Next::SendScript => in_full = true,
                Next::Moved(..) | Next::Ask(_) if !self.is_cluster() => return Err(Failure::in_a_cluster()),
                Next::Ask(to) => ask = Some(to),
                Next::Moved(slot, to) => {
                    lock(&self.map).moved(slot, to);
                    self.refresh();
                }
                Next::TryAgain if script.splits && call.key_count() > 1 => return Err(failure),
                Next::TryAgain => sleep(PAUSE).await,
                Next::Rediscover | Next::GiveUp => {
                    sleep(PAUSE).await;
                    if self.is_cluster() {
                        self.ask_for_slots(deadline).await?;
                    }
                }
            }
        }
    }

    /// Runs a script where it is sent, and nowhere else; once, but for a server that does not know it.
    pub(crate) async fn run_once(
        &self,
        slot: u16,
        script: &LuaScript,
        call: &impl Call,
        deadline: Instant,
    ) -> Result<Value, Failure> {
        let link = self.route(slot, deadline).await?;
        match link.call(&script.by_digest(call), deadline).await {
            Err(failure) if failure.next == Next::SendScript => link.call(&script.in_full(call), deadline).await,
            outcome => outcome,
        }
    }

    async fn send(
        &self,
        slot: u16,
        command: &Cmd,
        ask: Option<Address>,
        replicas: u32,
        (deadline, of): (Instant, Option<&Claim>),
    ) -> Result<Acknowledged, Failure> {
        let asking = ask.is_some();
        let (link, asked) = match ask {
            Some(address) => (self.link_to(&address), Some(address)),
            None => self.route_with_address(slot, deadline).await?,
        };
        let mut outcome = match (asking, replicas) {
            (false, 0) => link.call_for(of, command, deadline).await.map(|answer| (answer, Ok(0))),
            (true, 0) => self.send_together(&link, command, asking, 0, deadline).await,
            _ => {
                let lent = self.replicas.lend(asked.clone(), deadline).await?;
                let outcome = self.send_together(&lent.link, command, asking, replicas, deadline).await;
                if outcome.as_ref().map_or_else(|failure| failure.settled, |_| true) {
                    lent.give_back();
                }
                outcome
            }
        };
        if let Err(failure) = &mut outcome {
            // A node that does not know its own name means itself.
            if let (Next::Moved(_, (host, _)) | Next::Ask((host, _)), Some((asked, _))) = (&mut failure.next, asked)
                && host.is_empty()
            {
                *host = asked;
            }
            if !failure.settled {
                // Who did not answer may not be the master for long.
                self.refresh();
            }
        }
        outcome
    }

    /// In one go: what asks for a slot that is being taken over, the command, and what waits for replicas.
    async fn send_together(
        &self,
        link: &Link,
        command: &Cmd,
        asking: bool,
        replicas: u32,
        deadline: Instant,
    ) -> Result<Acknowledged, Failure> {
        let mut all = redis::pipe();
        if asking {
            all.cmd("ASKING");
        }
        all.add_command(command.clone());
        if replicas > 0 {
            all.add_command(replicas::wait(replicas, deadline));
        }
        let mut answers = link.call_all(&all, deadline).await?.into_iter();
        let mut next = || failed(answers.next().ok_or_else(Failure::odd_answer)?);
        let let_in = if asking { next().map(drop) } else { Ok(()) };
        let answer = match (next(), let_in) {
            // Sent away again, since it was not let in: why is what counts.
            (Err(_), Err(refused)) => return Err(refused),
            (answer, _) => answer?,
        };
        let acknowledged = match answers.next().map(failed) {
            None => Ok(0),
            Some(Ok(Value::Int(replicas))) => Ok(u32::try_from(replicas).unwrap_or(0)),
            Some(Ok(_)) => Err(Failure::odd_answer()),
            Some(Err(failure)) => Err(failure),
        };
        Ok((answer, acknowledged))
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.master {
            Some(link) => link.fmt(f),
            None => f.debug_set().entries(lock(&self.links).values()).finish(),
        }
    }
}
