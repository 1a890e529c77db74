//! Requests that are known before their turn: the memory that they will look at is fetched meanwhile.
//!
//! Rule    nothing is decided or remembered here. What a request does, it does in its turn.

use super::Engine;
use crate::commands::table;
use crate::resp::Request;
use crate::state::session::Session;

impl Engine {
    /// Has the memory fetched where the first keys of these requests are, each about to be carried out by its session.
    pub fn foresee<'r>(&self, requests: impl Iterator<Item = (&'r Session, Request<'r>)>) {
        let table = table();
        let keys = requests.filter_map(|(session, request)| {
            let mut last = session.last_row;
            let key = table.find_from(&mut last, request.get(0)?)?.first_key(request)?;
            Some((session.database, key))
        });
        self.shared.keyspace.foresee(keys);
    }
}
