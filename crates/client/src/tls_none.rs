//! Stands in for `tls` in a build without the feature: `rediss://` is refused.

use tokio::net::TcpStream;

use super::connection::Stream;
use super::error::Error;
use super::target::Trust;

/// # Errors
/// Always.
pub async fn handshake(_: TcpStream, _: &str, _: &Trust, _: &[&[u8]]) -> Result<Box<dyn Stream>, Error> {
    Err(Error::Url("rediss://: this build lacks the feature tls".to_owned()))
}
