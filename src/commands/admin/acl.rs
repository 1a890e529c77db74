//! ACL: users and their permissions.
//!
//! Rule    all rules of a request apply to a user, or none, and to all its sessions at once. Sessions that lose their user,
//!         or a channel that they are subscribed to, are ended.
//! Source  Redis 7.0 `acl.c`; rules for commands are shown as Redis 7.2 and Valkey show them.

use crate::commands::admin::acl_categories;
use crate::commands::admin::acl_check;
use crate::commands::admin::acl_file;
use crate::commands::admin::acl_log;
use crate::commands::admin::acl_sessions::{end_listeners, end_sessions};
use crate::commands::help;
use crate::commands::row::{Flags, Group, Row, integer, one_of, text, token};
use crate::commands::{Call, Outcome, table};
use crate::error::Refusal;
use crate::state::acl::selector::Selector;
use crate::state::acl::{DEFAULT, Denied, SetError};

pub(in crate::commands) const ROWS: &[Row] =
    &[Row::new(Group::Server, "ACL", "6.0.0", crate::commands::container)
        .summary("A container for commands about users and what they may do.")
        .subcommands(SUBCOMMANDS)];

const SUBCOMMANDS: &[Row] = &[
    Row {
        name: "CAT",
        summary: "Lists the categories of commands, or the commands of one.",
        flags: OPEN,
        args: &[text("category").maybe()],
        run: cat,
        ..ROW
    },
    Row {
        name: "DELUSER",
        summary: "Removes users and ends their connections; says how many there were.",
        args: &[text("username").many()],
        run: deluser,
        ..ROW
    },
    Row {
        name: "DRYRUN",
        summary: "Tells whether a user may send a command, without carrying it out.",
        since: "7.0.0",
        args: &[text("username"), text("command"), text("arg").maybe().many()],
        run: dryrun,
        ..ROW
    },
    Row {
        name: "GENPASS",
        summary: "Returns a password nobody can guess, of so many bits.",
        flags: OPEN,
        args: &[integer("bits").maybe()],
        run: acl_log::genpass,
        ..ROW
    },
    Row {
        name: "GETUSER",
        summary: "Returns what a user may do.",
        args: &[text("username")],
        run: getuser,
        ..ROW
    },
    Row { since: "6.0.0", ..help::row(Group::Server) },
    Row { name: "LIST", summary: "Returns all users as lines of an ACL file.", run: list, ..ROW },
    Row {
        name: "LOAD",
        summary: "Takes the users of the ACL file in place of all there are, or none if a line is wrong.",
        flags: ROW.flags.with(Flags::OFFLOAD),
        run: acl_file::load,
        ..ROW
    },
    Row {
        name: "LOG",
        summary: "Returns what was denied of late, or forgets it.",
        args: &[one_of("operation", &[integer("count"), token("reset", "RESET")]).maybe()],
        run: acl_log::log,
        ..ROW
    },
    Row {
        name: "SAVE",
        summary: "Writes all users to the ACL file.",
        flags: ROW.flags.with(Flags::OFFLOAD),
        run: acl_file::save,
        ..ROW
    },
    Row {
        name: "SETUSER",
        summary: "Makes or changes a user by rules, all or none.",
        args: &[text("username"), text("rule").maybe().many()],
        run: setuser,
        ..ROW
    },
    Row { name: "USERS", summary: "Returns the names of all users.", run: users, ..ROW },
    Row {
        name: "WHOAMI",
        summary: "Returns the name of the connection's user.",
        flags: OPEN,
        run: whoami,
        ..ROW
    },
];

const ROW: Row = Row::new(Group::Server, "", "6.0.0", users).summary("").flags(OPEN.with(Flags::ADMIN));

const OPEN: Flags = Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE);

fn whoami(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.reply.bulk(call.session.account.name());
    Ok(Outcome::Replied)
}

fn users(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let names: Vec<_> = call.shared.acl.all().iter().map(|account| account.name().clone()).collect();
    call.reply.bulks(&names);
    Ok(Outcome::Replied)
}

fn list(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.reply.bulks(&crate::state::acl::file::lines(&call.shared.acl));
    Ok(Outcome::Replied)
}

fn cat(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let category = call.args.maybe_word();
    if !call.args.is_empty() {
        return Err(Refusal::subcommand_syntax("ACL", call.args.request().word(1)));
    }
    let Some(category) = category else {
        call.reply.bulks(&acl_categories::NAMES);
        return Ok(Outcome::Replied);
    };
    let known = acl_categories::NAMES.into_iter().find(|name| category.eq_ignore_ascii_case(name.as_bytes()));
    let known = known.ok_or_else(|| Refusal::quoting("ERR Unknown category '", category, "'"))?;

    let members = table().all().filter(|command| acl_categories::is_in(command, known));
    // A container is not a command of its own.
    let members =
        members.filter(|command| command.subcommands.is_empty() || command.row.flags != Flags::NONE);
    call.reply.bulks(&members.map(|command| command.name.as_str()).collect::<Vec<_>>());
    Ok(Outcome::Replied)
}

fn setuser(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let rules: Vec<&[u8]> = call.args.rest().collect();

    let changed = call.shared.acl.set(name, rules.into_iter(), call.shared.acl_terms());
    let account = changed.map_err(|error| refused(&error))?;
    let is_own = end_listeners(call.shared, &account, call.session.client.id);

    call.reply.ok();
    Ok(if is_own { Outcome::Close } else { Outcome::Replied })
}

fn refused(error: &SetError) -> Refusal {
    match error {
        SetError::Name => Refusal::said("ERR Usernames can't contain spaces or null characters"),
        SetError::Users => Refusal::said("ERR There are too many users"),
        SetError::Parenthesis(word) => {
            Refusal::quoting("ERR Unmatched parenthesis in acl selector starting at '", word, "'.")
        }
        SetError::Rule(rule, error) => {
            Refusal::quoting("ERR Error in ACL SETUSER modifier '", rule, &format!("': {error}"))
        }
    }
}

fn deluser(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let names: Vec<&[u8]> = call.args.rest().collect();
    if names.contains(&DEFAULT) {
        return Err(Refusal::said("ERR The 'default' user cannot be removed"));
    }

    let gone: Vec<_> =
        names.into_iter().filter_map(|name| call.shared.acl.remove(name, call.shared.acl_terms())).collect();
    let is_own = end_sessions(call.shared, &gone, call.session.client.id);

    call.reply.count(gone.len());
    Ok(if is_own { Outcome::Close } else { Outcome::Replied })
}

fn getuser(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    let Some(account) = call.shared.acl.find(name) else {
        call.reply.null();
        return Ok(Outcome::Replied);
    };
    let user = account.user();
    let mut selectors = user.selectors();
    call.reply.map(6);
    call.reply.bulk(b"flags");
    let flags = user.flags();
    call.reply.set(flags.len());
    flags.iter().for_each(|flag| call.reply.bulk(flag.as_bytes()));
    call.reply.bulk(b"passwords");
    call.reply.bulks(&user.passwords().iter().map(|digest| digest.hex()).collect::<Vec<_>>());
    if let Some(own) = selectors.next() {
        show(call, own);
    }
    let more: Vec<_> = selectors.collect();
    call.reply.bulk(b"selectors");
    call.reply.array(more.len());
    for selector in more {
        call.reply.map(3);
        show(call, selector);
    }
    Ok(Outcome::Replied)
}

fn show(call: &mut Call<'_, '_>, selector: &Selector) {
    let parts =
        [("commands", selector.commands()), ("keys", selector.keys()), ("channels", selector.channels())];
    for (name, value) in parts {
        call.reply.bulk(name.as_bytes());
        call.reply.bulk(&value);
    }
}

fn dryrun(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let account = call.shared.acl.find(name);
    let account = account.ok_or_else(|| Refusal::quoting("ERR User '", name, "' not found"))?;
    let words: Vec<&[u8]> = call.args.rest().collect();
    let unknown = || Refusal::quoting("ERR Command '", words[0], "' not found");
    let mut command = table().find(words[0]).ok_or_else(unknown)?;
    if let Some(name) = words.get(1).filter(|_| !command.subcommands.is_empty()) {
        command = command.subcommand(name).ok_or_else(unknown)?;
    }
    if !command.fits(words.len()) {
        return Err(Refusal::Arity(command.name.as_str().into()));
    }

    let request = crate::resp::Request::listed(&words);
    let quoted = |kind: &str, at: usize| {
        [b"This user has no permissions to access the '", words[at], b"' ", kind.as_bytes()].concat()
    };
    match account.user().check(&acl_check::asked(command, request)) {
        Ok(()) => call.reply.ok(),
        Err(Denied::Command) => {
            let name = &command.name;
            call.reply.bulk(format!("This user has no permissions to run the '{name}' command").as_bytes());
        }
        Err(Denied::Key(at)) => call.reply.bulk(&quoted("key", at)),
        Err(Denied::Channel(at)) => call.reply.bulk(&quoted("channel", at)),
    }
    Ok(Outcome::Replied)
}
