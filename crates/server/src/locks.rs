//! The locks of a server in this process, without a socket.

use std::future::ready;
use std::sync::Arc;

use redlatch_client::Locks;
use redlatch_client::wire::Target;

use crate::Server;
use crate::handle::open_stream;

impl Server {
    /// The locks of this server, over connections without a socket.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = redlatch::Server::builder().start().await?;
    /// let guard = server.locks().lock("lock:stock").acquire().owner("me").await?;
    /// assert_eq!(server.keys().get("lock:stock").as_deref(), Some(&b"me"[..]));
    /// assert!(guard.release().await?);
    /// # Ok(()) }
    /// ```
    ///
    /// The client's time is that of the system, also where the server's clock is manual: a guard then learns from the
    /// server that its lease has ended.
    pub fn locks(&self) -> Locks {
        let login = Target { password: self.password(), ..Target::default() };
        let (context, workers) = (self.context().clone(), Arc::clone(&self.workers));
        Locks::with_login(move || ready(Ok(open_stream(&context, &workers))), login)
    }
}
