//! The HTTP port of a node while the node does not lead: each connection is answered in a task of its own.
//! Knows   `http::standby`, which answers; here is said who leads.

use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;

use super::leader::Leader;
use super::splice::Door;
use crate::http::standby::Standby;
use crate::listener::Accepted;

/// Answers one request in a task, and closes the connection.
pub(super) fn answer(accepted: Accepted, standby: Arc<Standby>, leader: Leader, place: OwnedSemaphorePermit) {
    if let Accepted::Tcp(stream, _) = accepted
        && let Ok(stream) = TcpStream::from_std(stream)
    {
        tokio::spawn(async move {
            let _place = place;
            standby.serve(stream, &text(&leader)).await;
        });
    }
}

fn text(leader: &Leader) -> String {
    match (leader.address(Door::Plain).or_else(|| leader.address(Door::Tls)), &leader.trouble) {
        (Some((_, address)), _) => format!("standby: {address} leads"),
        (None, Some(trouble)) => format!("standby: no node leads: {trouble}"),
        (None, None) => "standby: no node leads".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::leader::addresses;

    #[test]
    fn a_standby_says_who_leads() {
        let trouble = Some("no etcd".to_owned());
        let leader = Leader { epoch: 2, addresses: addresses(None, Some("a:1")), trouble };
        assert_eq!(text(&leader), "standby: a:1 leads");
        assert_eq!(text(&Leader { addresses: Vec::new(), ..leader }), "standby: no node leads: no etcd");
        assert_eq!(text(&Leader::default()), "standby: no node leads");
    }
}
