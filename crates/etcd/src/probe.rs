//! What a deployment is, asked of its members.

use crate::failure::{Failure, Refusal};
use crate::members::Members;
use crate::version::Version;
use etcd_client::Client;
use fencelock_core::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::task::JoinSet;

/// What was found, now or by the probe before.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probe {
    pub(crate) endpoints: Vec<Endpoint>,
    /// Of every member that has said it.
    pub(crate) versions: BTreeMap<u64, Version>,
    /// None if the cluster would not say.
    pub(crate) listed: Option<Vec<Listed>>,
}

/// One endpoint of the configuration.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) address: String,
    /// The member that has answered there.
    pub(crate) member: Option<u64>,
    answers: bool,
}

/// A member, as the cluster lists it.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) id: u64,
    pub(crate) learns: bool,
    /// Where it says that clients reach it.
    pub(crate) addresses: Vec<String>,
}

impl Endpoint {
    pub(crate) fn new(address: &str, member: Option<u64>) -> Self {
        Self { address: address.to_owned(), member, answers: member.is_some() }
    }
}

impl Probe {
    /// Asks every endpoint and, of the whole cluster, the list of its members.
    ///
    /// # Errors
    /// `Refused` if endpoints of two clusters answered, which matters at the first probe;
    /// `Unavailable` if none answered.
    pub(crate) async fn run(members: &Arc<Members>, before: Option<&Self>) -> Result<Self> {
        let mut probe = Self::default();
        let known = |at: usize| before.and_then(|before| before.endpoints.get(at)?.member);
        for (at, address) in members.endpoints().enumerate() {
            probe.endpoints.push(Endpoint { answers: false, ..Endpoint::new(address, known(at)) });
        }
        let mut asked = JoinSet::new();
        for at in 0..probe.endpoints.len() {
            let members = Arc::clone(members);
            asked.spawn(async move { (at, members.identify(at).await) });
        }
        let mut failure = Failure::timed_out(members.limit());
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok((at, Ok((id, version)))) => {
                    probe.versions.extend(version.map(|version| (id, version)));
                    if let Some(endpoint) = probe.endpoints.get_mut(at) {
                        (endpoint.member, endpoint.answers) = (Some(id), true);
                    }
                }
                // Worse than one that does not answer.
                Ok((_, Err(strange @ Failure::Refused(Refusal::Stranger(_))))) if before.is_none() => {
                    return Err(strange.into());
                }
                Ok((_, Err(e))) => failure = e,
                Err(_) => {}
            }
        }
        if !probe.endpoints.iter().any(|endpoint| endpoint.answers) {
            return Err(failure.into());
        }
        probe.listed = list(members).await?;
        if let Some(before) = before {
            probe.remember(before);
        }
        Ok(probe)
    }

    /// A member that does not answer now is what it was.
    fn remember(&mut self, before: &Self) {
        for (id, version) in &before.versions {
            self.versions.entry(*id).or_insert(*version);
        }
        if let Some(listed) = &self.listed {
            self.versions.retain(|id, _| listed.iter().any(|member| member.id == *id));
        }
    }

    /// Makes sure that the endpoints that answered lead to one store.
    ///
    /// # Errors
    /// `Refused` if one leads elsewhere.
    pub(crate) async fn are_one_store(&self, members: &Arc<Members>) -> Result<()> {
        let mut asked = JoinSet::new();
        for (at, _) in self.endpoints.iter().enumerate().filter(|(_, endpoint)| endpoint.answers) {
            let members = Arc::clone(members);
            asked.spawn(async move { members.prove(at).await });
        }
        while let Some(answer) = asked.join_next().await {
            if let Ok(Err(strange @ Failure::Refused(Refusal::Stranger(_)))) = answer {
                return Err(strange.into());
            }
        }
        Ok(())
    }

    /// Whether there is nothing left to find out.
    pub(crate) fn is_complete(&self) -> bool {
        self.endpoints.iter().all(|endpoint| endpoint.answers)
    }

    /// The members that vote; none if the cluster would not say.
    pub(crate) fn voters(&self) -> Option<BTreeSet<u64>> {
        let listed = self.listed.as_ref()?;
        Some(listed.iter().filter(|member| !member.learns).map(|member| member.id).collect())
    }

    /// The members that list the address as theirs.
    pub(crate) fn listed_at(&self, address: &str) -> Vec<u64> {
        let listed = self.listed.iter().flatten();
        listed.filter(|member| member.addresses.iter().any(|own| own == address)).map(|member| member.id).collect()
    }
}

async fn list(members: &Members) -> Result<Option<Vec<Listed>>> {
    let list = |mut client: Client| async move { client.member_list().await };
    match members.call(None, list).await {
        Ok(listed) => Ok(Some(listed.members().iter().map(listing).collect())),
        Err(failure @ Failure::Refused(Refusal::Stranger(_))) => Err(failure.into()),
        // Not every user may ask.
        Err(Failure::Refused(_)) => Ok(None),
        Err(failure) => Err(failure.into()),
    }
}

fn listing(member: &etcd_client::Member) -> Listed {
    let address = |url: &String| {
        let address = url.split_once("://").map_or(url.as_str(), |(_, address)| address);
        address.trim_end_matches('/').to_owned()
    };
    Listed {
        id: member.id(),
        learns: member.is_learner(),
        addresses: member.client_urls().iter().map(address).collect(),
    }
}
