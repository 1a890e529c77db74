//! Requests that are known before their turn: the memory that they will look at is fetched meanwhile.
//!
//! Rule    nothing is decided or remembered here. What a request does, it does in its turn.

use super::Engine;
use crate::commands::table;
use crate::resp::Request;
use crate::state::session::Session;

impl Engine {
    /// Has the memory fetched where the first keys of these requests are, which each of these sessions is about to carry out.
    pub fn foresee<'r, R>(&self, sessions: impl Iterator<Item = (&'r Session, R)>)
    where
        R: Iterator<Item = Request<'r>>,
    {
        let Some(mut ahead) = self.shared.keyspace.ahead() else { return };
        let table = table();
        for (session, requests) in sessions {
            let mut last = session.last_row;
            for request in requests {
                let command = request.get(0).and_then(|name| table.find_from(&mut last, name));
                if let Some(key) = command.and_then(|command| command.first_key(request)) {
                    ahead.look(session.database, key);
                }
            }
        }
        ahead.fetch();
    }
}
