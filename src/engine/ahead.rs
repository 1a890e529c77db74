//! Requests that are known before their turn: the memory that they will look at is fetched meanwhile.
//!
//! Rule    nothing is decided or remembered here. What a request does, it does in its turn.

use super::Engine;
use crate::commands::table;
use crate::resp::Request;
use crate::state::session::Session;

impl Engine {
    /// Has the memory fetched where the first keys of these requests are, which a session is about to carry out.
    pub fn foresee<'r>(&self, session: &Session, requests: impl Iterator<Item = Request<'r>>) {
        let table = table();
        let mut last = session.last_row;
        let keys =
            requests.filter_map(|request| table.find_from(&mut last, request.get(0)?)?.first_key(request));
        self.shared.keyspace.foresee(session.database, keys);
    }
}
