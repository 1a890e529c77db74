//! The key of a cluster, by which a node proves that it is one when it passes the address of a client on.
//!
//! Rule    a proof is for one challenge of the leader, and for one address: it is worth nothing on another connection.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use hmac::digest::Key;
use hmac::{Hmac, Mac};
use sha2::Sha256;

/// Bytes of an address, as a node sends it: an address of IPv6, or one of IPv4 in its form, and the port.
pub const ADDRESS_BYTES: usize = 18;
/// Bytes of a proof.
pub const PROOF_BYTES: usize = 32;

/// The key that all nodes of a cluster read in etcd.
#[derive(Clone, Copy)]
pub struct NodeKey([u8; 20]);

// Secrets do not appear in logs.
impl std::fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NodeKey(..)")
    }
}

impl NodeKey {
    pub const fn new(key: [u8; 20]) -> Self {
        Self(key)
    }

    /// What a node sends for a client with this address: the address and its proof.
    pub fn introduction(&self, challenge: &[u8], client: SocketAddr) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ADDRESS_BYTES + PROOF_BYTES);
        let ip = match client.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        bytes.extend_from_slice(&ip.octets());
        bytes.extend_from_slice(&client.port().to_be_bytes());
        let proof = self.proof(challenge, &bytes).finalize().into_bytes();
        bytes.extend_from_slice(&proof);
        bytes
    }

    /// The address in an introduction; `None`: it is not by a node.
    pub fn client(&self, challenge: &[u8], introduction: &[u8]) -> Option<SocketAddr> {
        let (address, proof) = introduction.split_at_checked(ADDRESS_BYTES)?;
        let is_right = self.proof(challenge, address).verify_slice(proof).is_ok();
        let (ip, port) = address.split_first_chunk::<16>().filter(|_| is_right)?;
        let port = u16::from_be_bytes(port.try_into().ok()?);
        Some(SocketAddr::new(Ipv6Addr::from(*ip).to_canonical(), port))
    }

    fn proof(&self, challenge: &[u8], address: &[u8]) -> Hmac<Sha256> {
        let mut block = Key::<Hmac<Sha256>>::default();
        block[..self.0.len()].copy_from_slice(&self.0);
        <Hmac<Sha256> as Mac>::new(&block).chain_update(challenge).chain_update(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_for_one_key_one_challenge_and_one_address() {
        let (key, other) = (NodeKey::new([7; 20]), NodeKey::new([8; 20]));
        for text in ["10.0.0.7:4711", "[2001:db8::1]:1"] {
            let client = text.parse().expect("an address");
            let mut said = key.introduction(b"challenge", client);
            assert_eq!(key.client(b"challenge", &said), Some(client));
            assert_eq!(key.client(b"another", &said), None);
            assert_eq!(other.client(b"challenge", &said), None);
            assert_eq!(key.client(b"challenge", &said[1..]), None);
            said[15] ^= 1;
            assert_eq!(key.client(b"challenge", &said), None);
        }
    }
}
