//! The connection to one member.

use crate::answer::Answer as _;
use crate::failure::Failure;
use crate::identity::Identity;
use etcd_client::{Client, ConnectOptions, KvClient};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Mutex;

/// What is asked through a connection. The client as a whole is a dozen clients, and to clone it costs as much as
/// the rest of what is done here for a request: what is asked often takes the part that it needs.
pub(crate) trait Part {
    fn of(client: &Client) -> Self;
}

impl Part for Client {
    fn of(client: &Client) -> Self {
        client.clone()
    }
}

impl Part for KvClient {
    fn of(client: &Client) -> Self {
        client.kv_client()
    }
}

pub(crate) struct Member {
    /// Its place in the configuration.
    at: usize,
    pub(crate) endpoint: String,
    /// Made when it is first needed, since connecting with a password asks the server.
    client: Mutex<Option<Arc<Client>>>,
    /// The store behind it was seen to be ours, and no connection has broken since.
    proved: AtomicBool,
}

/// Takes a proof back unless it was completed.
struct Proving<'a>(Option<&'a AtomicBool>);

impl Drop for Proving<'_> {
    fn drop(&mut self) {
        if let Some(proved) = self.0 {
            proved.store(false, Ordering::SeqCst);
        }
    }
}

impl Member {
    pub(crate) fn new(at: usize, endpoint: String) -> Self {
        Self { at, endpoint, client: Mutex::new(None), proved: AtomicBool::new(false) }
    }

    /// A connection, to whatever cluster the endpoint leads to.
    pub(crate) async fn connection(&self, options: &ConnectOptions) -> Result<Arc<Client>, Failure> {
        self.connect(&mut *self.client.lock().await, options).await
    }

    /// A connection to the store that is ours.
    pub(crate) async fn proved(&self, options: &ConnectOptions, ours: &Identity) -> Result<Arc<Client>, Failure> {
        let mut client = self.client.lock().await;
        let client = self.connect(&mut client, options).await?;
        // Before it is looked at: what breaks meanwhile takes it back.
        if !self.proved.swap(true, Ordering::SeqCst) {
            let mut proving = Proving(Some(&self.proved));
            Box::pin(self.look(client.kv_client(), ours)).await?;
            // Without a mark of ours there is more to look at the next time.
            proving.0 = proving.0.filter(|_| !ours.is_marked());
        }
        Ok(client)
    }

    async fn look(&self, mut client: KvClient, ours: &Identity) -> Result<(), Failure> {
        let got = client.get(ours.key.as_str(), None).await.map_err(|e| unsent(Failure::of(&e)))?;
        ours.check_cluster(self.at, &self.endpoint, got.cluster())?;
        ours.check_mark(self.at, &self.endpoint, got.kvs().first().map(etcd_client::KeyValue::value))
    }

    async fn connect(
        &self,
        client: &mut Option<Arc<Client>>,
        options: &ConnectOptions,
    ) -> Result<Arc<Client>, Failure> {
        if let Some(client) = client {
            return Ok(Arc::clone(client));
        }
        // What is rare is boxed: it is larger than all else that a request keeps, and each is moved into its place.
        let made = Box::pin(Client::connect([&self.endpoint], Some(options.clone()))).await;
        // Nothing but the password was sent.
        Ok(Arc::clone(client.insert(Arc::new(made.map_err(|e| unsent(Failure::of(&e)))?))))
    }

    /// A connection may have broken, and the next may lead elsewhere: whoever asks next looks first.
    pub(crate) fn doubt(&self) {
        self.proved.store(false, Ordering::SeqCst);
    }
}

/// A question before the request itself went unanswered: the request was never sent.
fn unsent(failure: Failure) -> Failure {
    match failure {
        Failure::Unknown(text) => Failure::NotSent(text),
        failure => failure,
    }
}
