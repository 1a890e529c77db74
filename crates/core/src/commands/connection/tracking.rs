//! CLIENT TRACKING and similar: a client keeps copies of values and gets invalidations when they change.
//!
//! Owns    the registration of the keys that a request reads.
//! Source  Redis 7.0 `tracking.c` and `networking.c`.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use redlatch_proto::error::Refusal;
use redlatch_proto::number;
use redlatch_proto::resp::Request;

use crate::commands::row::{Arg, Flags, integer, one_of, text, token};
use crate::commands::{Call, Command, Outcome, Shared};
use crate::keyspace::View;
use crate::state::clients::ClientId;
use crate::state::session::Session;
use crate::state::settings;
use crate::state::tracking::{Overlap, Reads, Tracker, Which};

/// The arguments of CLIENT TRACKING.
pub(in crate::commands) const TRACKING: &[Arg] = &[
    one_of("status", &[token("on", "ON"), token("off", "OFF")]),
    integer("client-id").after("REDIRECT").maybe(),
    text("prefix").after("PREFIX").maybe().many(),
    token("bcast", "BCAST").maybe(),
    token("optin", "OPTIN").maybe(),
    token("optout", "OPTOUT").maybe(),
    token("noloop", "NOLOOP").maybe(),
];

/// The options of CLIENT TRACKING.
#[derive(Debug, Default)]
struct Options<'a> {
    redirect: Option<ClientId>,
    prefixes: Vec<&'a [u8]>,
    is_broadcast: bool,
    is_opt_in: bool,
    is_opt_out: bool,
    no_loop: bool,
}

impl<'a> Options<'a> {
    fn parse(call: &mut Call<'a, '_>) -> Result<Self, Refusal> {
        let mut options = Self::default();
        while let Some(word) = call.args.maybe_word() {
            let has_more = !call.args.is_empty();
            match word.to_ascii_lowercase().as_slice() {
                b"redirect" if has_more => {
                    if options.redirect.is_some() {
                        let text = "ERR A client can only redirect to a single other client";
                        return Err(Refusal::said(text));
                    }
                    let id = number::integer(call.args.word()?).ok_or(Refusal::NotAnInteger)?;
                    let id = ClientId::try_from(id).ok();
                    options.redirect = id.filter(|id| call.shared.registries.clients.get(*id).is_some());
                    if options.redirect.is_none() {
                        let text = "ERR The client ID you want redirect to does not exist";
                        return Err(Refusal::said(text));
                    }
                }
                b"prefix" if has_more => options.prefixes.push(call.args.word()?),
                b"bcast" => options.is_broadcast = true,
                b"optin" => options.is_opt_in = true,
                b"optout" => options.is_opt_out = true,
                b"noloop" => options.no_loop = true,
                _ => return Err(Refusal::Syntax),
            }
        }
        Ok(options)
    }

    /// Checks that the options agree with each other and with the current tracking of the session.
    fn check(&self, session: &Session, shared: &Shared) -> Result<(), Refusal> {
        let said = |text| Err(Refusal::said(text));
        let before = shared.registries.tracking.of(session.client.id, |tracker| tracker.prefixes.clone());
        if !self.is_broadcast && !self.prefixes.is_empty() {
            return said("ERR PREFIX option requires BCAST mode to be enabled");
        }
        if before.as_ref().is_some_and(|prefixes| prefixes.is_some() != self.is_broadcast) {
            return said(
                "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then \
                 re-enabling it with a different mode.",
            );
        }
        if self.is_broadcast && (self.is_opt_in || self.is_opt_out) {
            return said("ERR OPTIN and OPTOUT are not compatible with BCAST");
        }
        if self.is_opt_in && self.is_opt_out {
            return said("ERR You can't specify both OPTIN mode and OPTOUT mode");
        }
        let is_switch = match session.reads.which {
            Which::Chosen => self.is_opt_out,
            Which::Unless => self.is_opt_in,
            Which::None | Which::Broadcast | Which::All => false,
        };
        if is_switch {
            return said(
                "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then \
                 re-enabling it with a different mode.",
            );
        }
        let before = before.flatten().unwrap_or_default();
        Overlap::first(&self.prefixes, &before).map_or(Ok(()), |overlap| Err(refuse(overlap)))
    }

    fn which(&self) -> Which {
        match (self.is_broadcast, self.is_opt_in, self.is_opt_out) {
            (true, ..) => Which::Broadcast,
            (_, true, _) => Which::Chosen,
            (_, _, true) => Which::Unless,
            _ => Which::All,
        }
    }
}

fn refuse(overlap: Overlap<'_>) -> Refusal {
    let (prefix, which, other): (_, &[u8], _) = match overlap {
        Overlap::Existing(prefix, other) => (prefix, b"an existing", other),
        Overlap::Provided(prefix, other) => (prefix, b"another provided", other),
    };
    let after = b"'. Prefixes for a single client must not overlap.";
    let text = [b"ERR Prefix '", prefix, b"' overlaps with ", which, b" prefix '", other, after];
    Refusal::Quoted(text.concat())
}

pub(in crate::commands) fn tracking(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let status = call.args.word()?;
    let options = Options::parse(call)?;
    let is_on = status.eq_ignore_ascii_case(b"ON");
    if !is_on && !status.eq_ignore_ascii_case(b"OFF") {
        return Err(Refusal::Syntax);
    }
    let registries = &call.shared.registries;
    if !is_on {
        call.view.change_tracking(registries, || {
            end(call.session, call.shared);
            Vec::new()
        });
        call.reply.ok();
        return Ok(Outcome::Replied);
    }
    options.check(call.session, call.shared)?;
    call.session.may_hold()?;

    call.session.reads.which = options.which();
    let prefixes = if options.prefixes.is_empty() { vec![&b""[..]] } else { options.prefixes };
    let prefixes = options.is_broadcast.then(|| prefixes.into_iter().map(Bytes::copy_from_slice).collect());
    let mut tracker = Tracker::new(Arc::clone(&call.session.client), prefixes);
    (tracker.redirect, tracker.no_loop) = (options.redirect, options.no_loop);
    call.view.change_tracking(registries, || registries.tracking.begin(tracker));

    call.reply.ok();
    Ok(Outcome::Replied)
}

pub(in crate::commands) fn caching(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let word = call.args.word()?;
    let is_yes = word.eq_ignore_ascii_case(b"YES");
    if call.shared.registries.tracking.of(call.session.client.id, |_| ()).is_none() {
        return Err(Refusal::said(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode \
             enabled",
        ));
    }
    if !is_yes && !word.eq_ignore_ascii_case(b"NO") {
        return Err(Refusal::Syntax);
    }
    let (mode, refusal) = match is_yes {
        true => {
            (Which::Chosen, "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.")
        }
        false => {
            (Which::Unless, "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.")
        }
    };
    if call.session.reads.which != mode {
        return Err(Refusal::said(refusal));
    }

    call.session.reads.is_next = true;

    call.reply.ok();
    Ok(Outcome::Replied)
}

pub(in crate::commands) fn get_redirect(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.reply.integer(redirect(call));
    Ok(Outcome::Replied)
}

/// The client that gets the invalidations: its id, 0 for the client itself, -1 if tracking is off.
fn redirect(call: &Call<'_, '_>) -> i64 {
    let target = call.shared.registries.tracking.of(call.session.client.id, |tracker| tracker.redirect);
    target.map_or(-1, |target| i64::try_from(target.unwrap_or(0)).unwrap_or(i64::MAX))
}

pub(in crate::commands) fn tracking_info(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let seen = call.shared.registries.tracking.of(call.session.client.id, |tracker| {
        (tracker.prefixes.clone(), tracker.no_loop, tracker.is_broken.load(Relaxed))
    });
    let is_on = seen.is_some();
    let (prefixes, no_loop, is_broken) = seen.unwrap_or_default();
    let mut flags: Vec<&[u8]> = vec![if is_on { b"on" } else { b"off" }];
    flags.extend(prefixes.is_some().then_some(&b"bcast"[..]));
    let (mode, next): (&[&[u8]], &[&[u8]]) = match call.session.reads.which {
        Which::None | Which::Broadcast | Which::All => (&[], &[]),
        Which::Chosen => (&[b"optin"], &[b"caching-yes"]),
        Which::Unless => (&[b"optout"], &[b"caching-no"]),
    };
    flags.extend_from_slice(mode);
    if call.session.reads.is_next {
        flags.extend_from_slice(next);
    }
    flags.extend(no_loop.then_some(&b"noloop"[..]));
    flags.extend(is_broken.then_some(&b"broken_redirect"[..]));

    call.reply.map(3);
    call.reply.bulk(b"flags");
    call.reply.set(flags.len());
    flags.into_iter().for_each(|flag| call.reply.bulk(flag));
    call.reply.bulk(b"redirect");
    call.reply.integer(redirect(call));
    call.reply.bulk(b"prefixes");
    call.reply.bulks(&prefixes.unwrap_or_default().into_iter().collect::<Vec<_>>());
    Ok(Outcome::Replied)
}

/// Ends the tracking of a session.
pub(crate) fn end(session: &mut Session, shared: &Shared) {
    session.reads = Reads::default();
    shared.registries.tracking.end(session.client.id);
}

/// Registers the keys that the request has read, while its shards are locked, if the session tracks its reads.
#[cold]
pub(crate) fn remember(
    session: &mut Session,
    shared: &Shared,
    command: &Command,
    request: Request<'_>,
    view: &mut View<'_>,
) {
    let flags = command.row.flags;
    // The commands that a script calls are registered one by one.
    if session.reads.are_tracked() && flags.has(Flags::READONLY) && !flags.has(Flags::SCRIPT) {
        // Above `maxmemory` each new key pushes others out.
        let keys_max = shared.settings.get(settings::TRACKING_TABLE_MAX_KEYS);
        let keys_max = if session.is_short_of_memory { 1 } else { keys_max };
        for at in command.positions(request) {
            view.remember(request.word(at), session.client.id, &shared.registries.tracking, keys_max);
        }
    }
    // CLIENT CACHING applies to the next command or transaction; CLIENT commands do not count.
    let goes_on = session.is_nested || session.transaction.is_some() || command.name.starts_with("client|");
    if !goes_on {
        session.reads = session.reads.after_next();
    }
}
