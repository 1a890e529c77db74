//! `redlatch fence`: what a database needs to check fencing tokens.
//!
//! Owns    the SQL, a file for each kind of database; docs/fencing.md says how to use it.
//! Knows   nothing of servers: it prints, and the operator runs what is printed.

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Arg, Command};

use crate::common::exit::{self, DONE, MISUSED, SYSTEM};
use crate::common::{Subcommand, task};

pub(super) const SQL: Subcommand = Subcommand::new(
    "fence sql",
    "Prints SQL for a database that checks fencing tokens: a table, and a check that refuses stale tokens.",
    arguments,
    |matches| {
        let sql = sql(matches.get_one::<String>("database").expect("a required argument"));
        Ok(task(|| exit::printed(sql)))
    },
)
.only(&[DONE, MISUSED, SYSTEM]);

/// A kind of database: its name, another name, and its SQL.
const DATABASES: [(&str, &str, &str); 3] = [
    ("postgres", "postgresql", include_str!("postgres.sql")),
    ("mysql", "mariadb", include_str!("mysql.sql")),
    ("sqlite", "sqlite3", include_str!("sqlite.sql")),
];

fn arguments(command: Command) -> Command {
    let kinds = DATABASES.map(|(name, other, _)| PossibleValue::new(name).alias(other));
    let database = Arg::new("database")
        .value_name("DATABASE")
        .required(true)
        .value_parser(PossibleValuesParser::new(kinds))
        .help("Kind of database; mysql also for MariaDB.");
    command
        .arg(database)
        .after_help("For example: redlatch fence sql postgres | psql shop. See docs/fencing.md.")
}

/// The SQL for a kind of database, by either of its names.
fn sql(asked: &str) -> &'static str {
    let mut databases = DATABASES.into_iter();
    let (.., sql) =
        databases.find(|(name, other, _)| asked == *name || asked == *other).expect("a possible value");
    sql
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_database_has_its_fence() {
        let fences = ["postgres", "mysql", "sqlite"].map(sql);
        let has = ["CREATE OR REPLACE FUNCTION", "CREATE PROCEDURE", "CREATE TRIGGER"];
        assert!(fences.iter().zip(has).all(|(fence, word)| fence.contains(word)), "{fences:?}");
        assert_eq!(sql("mariadb"), fences[1]);
    }
}
