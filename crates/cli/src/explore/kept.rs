//! The test that keeps what was found: it explores the command once more with each failure that has shown something.
//!
//! Owns    to which test framework a command belongs, and how a test is written for it.
//! Rule    a test takes its framework and `redlatch`, and nothing else. Where it is part of what is explored, it names that
//!         by itself: a test of Go or Rust its own program, one of JUnit its own class path.

use std::iter::once;

use serde_json::Value;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Framework {
    Cargo,
    Go,
    Jest,
    Junit,
    Node,
    Pytest,
    Vitest,
}

impl Framework {
    /// That of a command; none if nothing tells it.
    pub(super) fn of(command: &[String]) -> Option<Self> {
        let names: Vec<&str> = command.iter().map(|word| base_name(word)).collect();
        let has = |name: &str| names.contains(&name);
        Some(match *names.first()? {
            "java" | "mvn" | "mvnw" | "gradle" | "gradlew" => Self::Junit,
            "cargo" => Self::Cargo,
            "go" => Self::Go,
            name if name.ends_with(GO_TEST) => Self::Go,
            name if has("pytest") || name.starts_with("python") => Self::Pytest,
            _ if has("vitest") => Self::Vitest,
            _ if has("jest") => Self::Jest,
            _ if has("node") => Self::Node,
            _ if is_of_cargo(&command[0]) => Self::Cargo,
            _ => return None,
        })
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Cargo => "Rust",
            Self::Go => "Go",
            Self::Jest => "Jest",
            Self::Junit => "JUnit 5",
            Self::Node => "node:test",
            Self::Pytest => "pytest",
            Self::Vitest => "Vitest",
        }
    }

    /// A test that fails as long as one of the cases, explored with these options, finds anything in the command.
    pub(super) fn test(self, options: &[String], command: &[String], cases: &[String]) -> String {
        let own = self.own(command);
        let word = |(at, word): (usize, &String)| match own {
            Some((own_at, own)) if at == own_at => own.to_owned(),
            _ => self.literal(word),
        };
        let options = options.iter().map(|option| self.literal(option)).chain(once(self.literal("--")));
        let words: Vec<_> = options.chain(command.iter().enumerate().map(word)).collect();
        let words = words.join(if self == Self::Cargo { ").arg(" } else { ", " });
        let template = self.template();
        let lines = template.lines().flat_map(|line| match line.contains(CASE) {
            true => cases.iter().map(|case| line.replace(CASE, &self.literal(case))).collect(),
            false => vec![line.replace(WORDS, &words)],
        });
        let test: String = lines.map(|line| line + "\n").collect();
        match (self, own) {
            (Self::Go, Some(_)) => {
                test.replace("package main", &format!("package {}", go_package(&command[0])))
            }
            (Self::Go, None) => test.replace("\t\"os\"\n", ""),
            _ => test,
        }
    }

    /// The word of the command that the test finds by itself, and how.
    fn own(self, command: &[String]) -> Option<(usize, &'static str)> {
        match self {
            Self::Go if base_name(&command[0]).ends_with(GO_TEST) => Some((0, "os.Args[0]")),
            Self::Cargo if is_of_cargo(&command[0]) => Some((0, "std::env::current_exe().unwrap()")),
            Self::Junit => {
                let option = command.iter().position(|word| CLASS_PATHS.contains(&word.as_str()))?;
                Some((option + 1, "System.getProperty(\"java.class.path\")"))
            }
            _ => None,
        }
    }

    /// Text as the language writes it. Others than Rust read what JSON writes.
    fn literal(self, text: &str) -> String {
        match self {
            Self::Cargo => format!("{text:?}"),
            _ => Value::from(text).to_string(),
        }
    }

    /// A test in which a line with [`CASE`] stands for one of each case, and [`WORDS`] for the end of the command.
    fn template(self) -> String {
        let imports = match self {
            Self::Cargo => return CARGO.to_owned(),
            Self::Go => return GO.to_owned(),
            Self::Junit => return JUNIT.to_owned(),
            Self::Pytest => return PYTEST.to_owned(),
            Self::Jest => JEST_IMPORTS,
            Self::Node => NODE_IMPORTS,
            Self::Vitest => VITEST_IMPORTS,
        };
        format!("{imports}{JAVASCRIPT}")
    }
}

/// The last part of a path, without the ending of a program of Windows.
fn base_name(word: &str) -> &str {
    word.rsplit(['/', '\\']).next().unwrap_or(word).trim_end_matches(".exe")
}

/// Whether Cargo has built this program of tests.
fn is_of_cargo(program: &str) -> bool {
    program.replace('\\', "/").contains("/deps/")
}

/// The package whose tests are this program, if that has the name which Go gives it.
fn go_package(program: &str) -> &str {
    let name = base_name(program).trim_end_matches(GO_TEST);
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.bytes().all(is_name) { name } else { "main" }
}

/// How the program ends that `go test -c` builds.
const GO_TEST: &str = ".test";
/// Options of Java before a class path.
const CLASS_PATHS: &[&str] = &["-cp", "-classpath", "--class-path"];
/// Stands for a case in a template.
const CASE: &str = "CASE";
/// Stands for the words behind the case in a template: other options, and the command.
const WORDS: &str = "WORDS";

const PYTEST: &str = r#"import subprocess

import pytest


@pytest.mark.parametrize("failure", [
    CASE,
])
def test_locks_survive(failure):
    subprocess.run(["redlatch", "explore", "--case", failure, WORDS], check=True)
"#;

const JEST_IMPORTS: &str = r#"const { spawnSync } = require("node:child_process");
"#;

const NODE_IMPORTS: &str = r#"import { spawnSync } from "node:child_process";
import test from "node:test";
"#;

const VITEST_IMPORTS: &str = r#"import { spawnSync } from "node:child_process";
import { test } from "vitest";
"#;

const JAVASCRIPT: &str = r#"
for (const failure of [
  CASE,
]) {
  test(`locks survive ${failure}`, () => {
    const done = spawnSync("redlatch", ["explore", "--case", failure, WORDS], { encoding: "utf8" });
    if (done.status !== 0) throw done.error ?? new Error(done.stdout + done.stderr);
  }, 600_000);
}
"#;

const GO: &str = r#"package main // as in your other tests

import (
	"os"
	"os/exec"
	"testing"
)

func TestLocksSurvive(t *testing.T) {
	for _, failure := range []string{
		CASE,
	} {
		t.Run(failure, func(t *testing.T) {
			search := exec.Command("redlatch", "explore", "--case", failure, WORDS)
			if output, err := search.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, output)
			}
		})
	}
}
"#;

const JUNIT: &str = r#"import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class LocksSurviveTest {
    @ParameterizedTest
    @ValueSource(strings = {
        CASE,
    })
    void locksSurvive(String failure) throws Exception {
        Process search = new ProcessBuilder("redlatch", "explore", "--case", failure, WORDS)
                .redirectErrorStream(true).start();
        String output = new String(search.getInputStream().readAllBytes());
        assertEquals(0, search.waitFor(), output);
    }
}
"#;

const CARGO: &str = r#"#[test]
fn locks_survive() {
    for failure in [
        CASE,
    ] {
        let mut search = std::process::Command::new("redlatch");
        search.arg("explore").arg("--case").arg(failure).arg(WORDS);
        assert!(search.status().unwrap().success(), "{failure}");
    }
}
"#;

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_command_tells_its_framework() {
        use Framework::{Cargo, Go, Jest, Junit, Node, Pytest, Vitest};
        let commands = [
            ("pytest tests/test_orders.py::test_pay", Some(Pytest)),
            ("uv run pytest", Some(Pytest)),
            ("venv/bin/python3.11 -m redlatch.explore tests", Some(Pytest)),
            ("python service.py", Some(Pytest)),
            ("npx redlatch-explore vitest tests/orders.test.js -t pay", Some(Vitest)),
            ("node node_modules/.bin/jest", Some(Jest)),
            ("npx redlatch-explore node tests/orders.test.js", Some(Node)),
            ("node.exe orders.mjs", Some(Node)),
            ("go test -run TestPay .", Some(Go)),
            ("./orders.test -test.run TestPay", Some(Go)),
            ("mvn --offline surefire:test", Some(Junit)),
            ("/usr/bin/java -cp a:b dev.redlatch.junit.Explore OrdersTest", Some(Junit)),
            ("cargo test", Some(Cargo)),
            ("target/debug/deps/orders-0123456789abcdef --exact pays", Some(Cargo)),
            ("npm test", None),
            ("php orders.php", None),
        ];
        for (command, framework) in commands {
            assert_eq!(Framework::of(&words(command)), framework, "{command}");
        }
    }

    #[test]
    fn a_test_names_each_case_and_the_command() {
        let (options, command) = (words("--nodes 3"), ["pytest".to_owned(), "-k a \"b\"".to_owned()]);
        let test = Framework::Pytest.test(&options, &command, &words("paused@acquire:1 late@SET:2"));
        let cases = "[\n    \"paused@acquire:1\",\n    \"late@SET:2\",\n])\n";
        let search = r#"(["redlatch", "explore", "--case", failure, "--nodes", "3", "--", "pytest", "-k a \"b\""], check"#;
        assert!(test.contains(cases) && test.contains(search), "{test}");
    }

    #[test]
    fn a_test_within_the_explored_program_finds_it_by_itself() {
        let test = |command: &str| {
            let command = words(command);
            Framework::of(&command).unwrap().test(&[], &command, &words("late@acquire:1"))
        };
        for (command, part) in [
            ("./orders.test -test.run TestPay", r#"failure, "--", os.Args[0], "-test.run", "TestPay")"#),
            (
                "target/debug/deps/orders-01 pays",
                r#".arg("--").arg(std::env::current_exe().unwrap()).arg("pays");"#,
            ),
            ("java -cp a:b Explore Orders", r#""-cp", System.getProperty("java.class.path"), "Explore", "#),
        ] {
            assert!(test(command).contains(part), "{part} is in {}", test(command));
        }
        assert!(test("./orders.test").starts_with("package orders "));
        assert!(!test("go test .").contains("\"os\""), "Go refuses an import that is not used");
    }
}
