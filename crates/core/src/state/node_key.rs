//! The key of a cluster, by which a node proves that it is one when it passes the address of a client on.
//!
//! Rule    a proof is for one challenge of the leader, and for one address: it is worth nothing on another connection.
//! Source  HMAC-SHA256: RFC 2104, RFC 4231.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// Bytes of an address, as a node sends it: an address of IPv6, or one of IPv4 in its form, and the port.
pub const ADDRESS_BYTES: usize = 18;
/// Bytes of a proof.
pub const PROOF_BYTES: usize = 32;
/// Bytes of a block of SHA-256.
const BLOCK_BYTES: usize = 64;

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
        let proof = hmac(&self.0, [challenge, &bytes]);
        bytes.extend_from_slice(&proof);
        bytes
    }

    /// The address in an introduction; `None`: it is not by a node.
    pub fn client(&self, challenge: &[u8], introduction: &[u8]) -> Option<SocketAddr> {
        let (address, proof) = introduction.split_at_checked(ADDRESS_BYTES)?;
        let is_right = bool::from(hmac(&self.0, [challenge, address]).ct_eq(proof));
        let (ip, port) = address.split_first_chunk::<16>().filter(|_| is_right)?;
        let port = u16::from_be_bytes(port.try_into().ok()?);
        Some(SocketAddr::new(Ipv6Addr::from(*ip).to_canonical(), port))
    }
}

/// HMAC-SHA256 of a text in two parts. `key`: a block at most.
fn hmac(key: &[u8], text: [&[u8]; 2]) -> [u8; PROOF_BYTES] {
    let padded = |pad: u8| {
        let mut block = [pad; BLOCK_BYTES];
        block.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
        block
    };
    let inner =
        text.iter().fold(Sha256::new().chain_update(padded(0x36)), |hash, part| hash.chain_update(part));
    Sha256::new().chain_update(padded(0x5c)).chain_update(inner.finalize()).finalize().into()
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

    #[test]
    fn hmac_is_that_of_the_standard() {
        // RFC 4231, test cases 1 and 2.
        let hex = |bytes: [u8; 32]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(
            hex(hmac(&[0x0b; 20], [b"Hi ", b"There"])),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
        );
        assert_eq!(
            hex(hmac(b"Jefe", [b"what do ya want ", b"for nothing?"])),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }
}
