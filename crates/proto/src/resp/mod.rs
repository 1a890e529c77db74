//! RESP, the Redis serialisation protocol: requests in, replies out.
//!
//! Owns    [`Decoder`], which finds requests in the bytes received, and [`Reply`], which writes answers; [`Element`], which
//!         reads them again; and the values of replies, for those who ask a server.
//! Knows   bytes and limits; nothing of commands, keys or sockets.

mod decode;
mod element;
mod encode;
mod inline;
mod lookahead;
mod request;

pub use decode::{Decoder, RequestLimits};
pub use element::Element;
pub use encode::{Protocol, Reply};
pub use inline::words;
pub use lookahead::likely_key;
pub use request::{OwnedRequest, Request, Words};
