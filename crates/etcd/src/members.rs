//! The members of the cluster: one connection each, and the one that is asked first.
//!
//! The client library's own balancing sends requests to members that are down,
//! so that some fail at once while others would have been answered. Here a
//! member that fails is passed over by everybody until the next one fails.

use crate::EtcdConfig;
use crate::failure::{Failure, Refusal};
use etcd_client::{Client, ConnectOptions};
use fencelock_core::{Claim, Result};
use std::fmt;
use std::future::Future;
use std::time::Duration;
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, timeout};

/// The pause before members that all failed are asked again.
const ROUND: Duration = Duration::from_millis(30);

pub(crate) struct Members {
    list: Vec<Member>,
    current: watch::Sender<usize>,
    limit: Duration,
    options: ConnectOptions,
}

struct Member {
    endpoint: String,
    /// Made when it is first needed, since connecting with a password asks the server.
    client: Mutex<Option<Client>>,
}

/// What may be done about a request that was not answered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// It means the same when it arrives twice: another member is asked.
    Same,
    /// It would be misread: the caller learns that its outcome is unknown.
    Never,
}

impl Members {
    pub(crate) async fn of(config: &EtcdConfig) -> Result<Self> {
        let options = crate::connect::options(config).await?;
        let list: Vec<_> = config
            .endpoints()
            .iter()
            .map(|endpoint| Member { endpoint: endpoint.clone(), client: Mutex::new(None) })
            .collect();
        let (current, _) = watch::channel(fastrand::usize(..list.len().max(1)));
        Ok(Self { list, current, limit: config.request_timeout, options })
    }

    pub(crate) fn count(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    pub(crate) fn current(&self) -> usize {
        *self.current.borrow()
    }

    /// Tells when another member is asked first from now on.
    pub(crate) fn moves(&self) -> watch::Receiver<usize> {
        self.current.subscribe()
    }

    /// The member failed: everybody asks the next one first.
    pub(crate) fn pass_over(&self, member: usize) {
        self.current.send_if_modified(|current| {
            let others = self.list.len() > 1 && *current == member;
            if others {
                *current = (member + 1) % self.list.len();
            }
            others
        });
    }

    /// A connection to the member.
    pub(crate) async fn client(&self, member: usize) -> std::result::Result<Client, Failure> {
        let Some(member) = self.list.get(member) else { return Err(Failure::NotSent("no such member".to_owned())) };
        let mut client = member.client.lock().await;
        if let Some(client) = &*client {
            return Ok(client.clone());
        }
        match Client::connect([&member.endpoint], Some(self.options.clone())).await {
            Ok(connected) => Ok(client.insert(connected).clone()),
            Err(e) => Err(match Failure::of(&e) {
                // Nothing but the password was sent.
                Failure::Unknown(text) => Failure::NotSent(text),
                failure => failure,
            }),
        }
    }

    /// Asks one member once.
    pub(crate) async fn ask<T, F>(
        &self,
        member: usize,
        claim: Option<&Claim>,
        work: impl Fn(Client) -> F,
    ) -> std::result::Result<T, Failure>
    where
        F: Future<Output = std::result::Result<T, etcd_client::Error>>,
    {
        let client = self.client(member).await?;
        let request = claim.map(Claim::request);
        let outcome = work(client).await.map_err(|e| Failure::of(&e));
        if let Some(request) = request
            && outcome.as_ref().map_or_else(Failure::had_no_effect, |_| true)
        {
            request.answered();
        }
        outcome
    }

    /// Asks until a member answers, within the time-out of a request.
    ///
    /// A `claim` is given where the request could take its lock or a place in the queue.
    pub(crate) async fn call<T, F>(
        &self,
        claim: Option<&Claim>,
        again: Again,
        work: impl Fn(Client) -> F,
    ) -> std::result::Result<T, Failure>
    where
        F: Future<Output = std::result::Result<T, etcd_client::Error>>,
    {
        let end = Instant::now() + self.limit;
        // One that hangs must leave time for another.
        let share = if self.list.len() > 1 { self.limit / 2 } else { self.limit };
        let (mut unknown, mut refreshed) = (None, false);
        for round in 0_usize.. {
            let member = self.current();
            let limit = share.min(end.saturating_duration_since(Instant::now()));
            let outcome = timeout(limit, self.ask(member, claim, &work)).await;
            let failure = match outcome {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(Failure::Refused(Refusal::OldPermissions))) if !refreshed => {
                    refreshed = true;
                    self.refresh(member).await;
                    continue;
                }
                Ok(Err(failure)) => failure,
                Err(_) => Failure::timed_out(limit),
            };
            if !failure.is_passing() || (again == Again::Never && !failure.had_no_effect()) {
                return Err(failure);
            }
            self.pass_over(member);
            let failure = match (unknown.take(), failure) {
                (Some(before), _) => before,
                (None, now) => now,
            };
            if Instant::now() + ROUND >= end {
                return Err(failure);
            }
            unknown = (!failure.had_no_effect()).then_some(failure);
            if (round + 1).is_multiple_of(self.list.len().max(1)) {
                tokio::time::sleep(ROUND).await;
            }
        }
        Err(Failure::timed_out(self.limit))
    }

    /// Authenticates anew at the member, if we do at all.
    pub(crate) async fn refresh(&self, member: usize) {
        let refreshed = async {
            if let Ok(client) = self.client(member).await {
                let _ = client.refresh_token().await;
            }
        };
        let _ = timeout(self.limit / 2, refreshed).await;
    }
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.list.iter().map(|member| &member.endpoint)).finish()
    }
}
