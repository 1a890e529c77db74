//! `redlatch fence`: what a database needs to check fencing tokens.
//!
//! Owns    the SQL, a file for each kind of database; docs/fencing.md says how to use it.
//! Knows   nothing of servers: it prints, and the operator runs what is printed.

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Arg, ArgMatches, Command};

use super::flags::Action;

/// The names of the subcommands.
pub(super) const NAMES: &[&str] = &["fence"];

/// A kind of database: its name, another name, and its SQL.
const DATABASES: [(&str, &str, &str); 3] = [
    ("postgres", "postgresql", include_str!("postgres.sql")),
    ("mysql", "mariadb", include_str!("mysql.sql")),
    ("sqlite", "sqlite3", include_str!("sqlite.sql")),
];

pub(super) fn command() -> Command {
    let kinds = DATABASES.map(|(name, other, _)| PossibleValue::new(name).alias(other));
    let database = Arg::new("database")
        .value_name("DATABASE")
        .required(true)
        .value_parser(PossibleValuesParser::new(kinds))
        .help("The kind of database; mysql is MariaDB, too.");
    let sql = Command::new("sql")
        .about("Prints the SQL that lets transactions check fencing tokens: a table, and what refuses a stale token.")
        .arg(database)
        .after_help("For example: redlatch fence sql postgres | psql shop. See docs/fencing.md.");
    Command::new("fence")
        .about("Prints what a database needs to check fencing tokens.")
        .subcommand_required(true)
        .subcommand(sql)
}

/// What the arguments ask for.
pub(super) fn read(matches: &ArgMatches) -> Action {
    let (_, matches) = matches.subcommand().expect("a required subcommand");
    let asked = matches.get_one::<String>("database").expect("a required argument");
    let mut databases = DATABASES.into_iter();
    let (.., sql) =
        databases.find(|(name, other, _)| asked == name || asked == other).expect("a possible value");
    Action::Print(sql.to_owned())
}
