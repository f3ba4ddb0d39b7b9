//! The members of the cluster: one connection each, and the one that is asked first.
//!
//! The client library's own balancing sends requests to members that are down,
//! so that some fail at once while others would have been answered. Here a
//! member that fails is passed over by everybody until the next one fails.

use crate::EtcdConfig;
use crate::answer::Answer;
use crate::failure::{Failure, Refusal};
use crate::identity::Identity;
use crate::keys::Keys;
use crate::member::{Member, Part};
use crate::version::Version;
use etcd_client::{Client, ConnectOptions, GetOptions};
use fencelock_core::{Claim, Result};
use std::fmt;
use std::future::Future;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// The pause before members that all failed are asked again.
const ROUND: Duration = Duration::from_millis(30);

pub(crate) struct Members {
    list: Vec<Member>,
    current: watch::Sender<usize>,
    limit: Duration,
    options: ConnectOptions,
    pub(crate) identity: Identity,
}

impl Members {
    pub(crate) async fn of(config: &EtcdConfig) -> Result<Self> {
        let options = crate::connect::options(config).await?;
        let endpoints = config.endpoints().iter().cloned().enumerate();
        let list: Vec<_> = endpoints.map(|(at, endpoint)| Member::new(at, endpoint)).collect();
        let (current, _) = watch::channel(fastrand::usize(..list.len().max(1)));
        let identity = Identity::of_key(Keys::under(config.prefix()).meta());
        Ok(Self { list, current, limit: config.request_timeout, options, identity })
    }

    pub(crate) fn endpoints(&self) -> impl ExactSizeIterator<Item = &str> {
        self.list.iter().map(|member| member.endpoint.as_str())
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

    fn member(&self, at: usize) -> std::result::Result<&Member, Failure> {
        self.list.get(at).ok_or_else(|| Failure::NotSent("no such member".to_owned()))
    }

    /// Asks whatever is behind an endpoint what it is: a member's id, and its version if we may know it.
    pub(crate) async fn identify(&self, at: usize) -> std::result::Result<(u64, Option<Version>), Failure> {
        let asked = async {
            let member = self.member(at)?;
            let mut client = Client::of(&*member.connection(&self.options).await?);
            // Learners and members that are cut off answer this too, and who may lock may ask it.
            let any = client.get(self.identity.key.as_str(), Some(GetOptions::new().with_serializable())).await;
            let any = any.map_err(|e| Failure::of(&e))?;
            self.identity.check_cluster(at, &member.endpoint, any.cluster())?;
            let id = any.header().map_or(0, etcd_client::ResponseHeader::member_id);
            match client.status().await.map_err(|e| Failure::of(&e)) {
                Ok(status) => Ok((id, Some(Version::parse(status.version())))),
                // Newer versions ask for more than the permission to lock.
                Err(Failure::Refused(Refusal::Denied(_))) => Ok((id, None)),
                Err(failure) => Err(failure),
            }
        };
        timeout(self.limit, asked).await.unwrap_or_else(|_| Err(Failure::timed_out(self.limit)))
    }

    /// Makes sure that the store behind an endpoint is ours.
    pub(crate) async fn prove(&self, at: usize) -> std::result::Result<(), Failure> {
        let asked = async {
            let member = self.member(at)?;
            member.doubt();
            member.proved(&self.options, &self.identity).await.map(drop)
        };
        timeout(self.limit, asked).await.unwrap_or_else(|_| Err(Failure::timed_out(self.limit)))
    }

    /// Asks one member once.
    pub(crate) async fn ask<P: Part, T: Answer, F>(
        &self,
        at: usize,
        claim: Option<&Claim>,
        work: impl Fn(P) -> F,
    ) -> std::result::Result<T, Failure>
    where
        F: Future<Output = std::result::Result<T, etcd_client::Error>>,
    {
        let member = self.member(at)?;
        let client = P::of(&*member.proved(&self.options, &self.identity).await?);
        let request = claim.map(Claim::request);
        let outcome = match work(client).await.map_err(|e| Failure::of(&e)) {
            Ok(answer) => self.check(at, answer),
            // So says every cluster but the one where the lease is.
            Err(Failure::Refused(Refusal::NoLease)) => Err(Box::pin(self.no_lease(at)).await),
            Err(failure) => Err(failure),
        };
        if let Err(Failure::NotSent(_) | Failure::Unknown(_)) = outcome {
            member.doubt();
        }
        if let Some(request) = request
            && outcome.as_ref().map_or_else(Failure::had_no_effect, |_| true)
        {
            request.answered();
        }
        outcome
    }

    /// The answer, if it is from our cluster.
    pub(crate) fn check<T: Answer>(&self, at: usize, answer: T) -> std::result::Result<T, Failure> {
        let member = self.member(at)?;
        match self.identity.check_cluster(at, &member.endpoint, answer.cluster()) {
            Ok(()) => Ok(answer),
            Err(strange) => {
                member.doubt();
                Err(strange)
            }
        }
    }

    /// A stream through this member has broken.
    pub(crate) fn doubt(&self, at: usize) {
        if let Some(member) = self.list.get(at) {
            member.doubt();
        }
    }

    /// Looks which endpoint leads to another store, when one has answered from there.
    pub(crate) async fn elsewhere(&self) -> Failure {
        let first = self.current();
        for at in (0..self.list.len()).map(|next| (first + next) % self.list.len()) {
            if let Err(failure @ Failure::Refused(Refusal::Stranger(_))) = self.prove(at).await {
                return failure;
            }
        }
        Failure::NotSent("another store answered, and does no more".to_owned())
    }

    /// Believes that a lease is gone only if our cluster says so.
    pub(crate) async fn no_lease(&self, at: usize) -> Failure {
        match self.prove(at).await {
            Ok(()) => Failure::Refused(Refusal::NoLease),
            Err(failure @ Failure::Refused(Refusal::Stranger(_))) => failure,
            Err(failure) => Failure::NotSent(format!("the lease is said to be gone, and no more: {failure}")),
        }
    }

    /// Asks until a member answers, within the time-out of a request. What is asked must mean the same when it arrives twice.
    ///
    /// A `claim` is given where the request could take its lock or a place in the queue.
    pub(crate) async fn call<P: Part, T: Answer, F>(
        &self,
        claim: Option<&Claim>,
        work: impl Fn(P) -> F,
    ) -> std::result::Result<T, Failure>
    where
        F: Future<Output = std::result::Result<T, etcd_client::Error>>,
    {
        self.call_again(claim, work).await.map(|(answer, _)| answer)
    }

    /// As [`call`](Self::call), and tells whether an earlier copy of the request may have been acted on.
    pub(crate) async fn call_again<P: Part, T: Answer, F>(
        &self,
        claim: Option<&Claim>,
        work: impl Fn(P) -> F,
    ) -> std::result::Result<(T, bool), Failure>
    where
        F: Future<Output = std::result::Result<T, etcd_client::Error>>,
    {
        let end = Instant::now() + self.limit;
        let mut first: Option<Failure> = None;
        for round in 1_usize.. {
            let at = self.current();
            let limit = self.share().min(end.saturating_duration_since(Instant::now()));
            let outcome = timeout(limit, self.ask(at, claim, &work)).await;
            let failure = match outcome {
                Ok(Ok(answer)) => return Ok((answer, first.is_some_and(|failure| !failure.had_no_effect()))),
                Ok(Err(failure)) if !failure.is_passing() => return Err(failure),
                Ok(Err(failure)) => failure,
                Err(_) => Failure::timed_out(limit),
            };
            let old_token = failure == Failure::Refused(Refusal::OldToken);
            if !old_token {
                self.pass_over(at);
            }
            // What may have happened counts for more than what did not.
            first = match first {
                Some(before) if !before.had_no_effect() || failure.had_no_effect() => Some(before),
                _ => Some(failure),
            };
            let left = end.saturating_duration_since(Instant::now());
            if left <= ROUND {
                break;
            }
            if old_token {
                Box::pin(self.refresh(at, left - ROUND)).await;
            }
            if round.is_multiple_of(self.list.len().max(1)) {
                tokio::time::sleep(ROUND).await;
            }
        }
        Err(first.unwrap_or_else(|| Failure::timed_out(self.limit)))
    }

    /// How long one member may take: one that hangs must leave time for another, and two of five for a third.
    fn share(&self) -> Duration {
        match self.list.len() {
            0 | 1 => self.limit,
            2..=4 => self.limit / 2,
            _ => self.limit / 3,
        }
    }

    /// Authenticates anew at the member, if we do at all.
    pub(crate) async fn refresh(&self, at: usize, most: Duration) {
        let refreshed = async {
            if let Ok(member) = self.member(at)
                && let Ok(client) = member.connection(&self.options).await
            {
                let _ = client.refresh_token().await;
            }
        };
        let _ = timeout(most.min(self.limit / 2), refreshed).await;
    }
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.endpoints()).finish()
    }
}
