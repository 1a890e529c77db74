//! The files for deployment: the settings, probes and commands that they name are run with the binary.
//! Source  whether the files fit their schemas is checked by packages/deploy/check.py.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::binary::{Directory, Running, redlatch};
use crate::support::waits::wait_until;

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The words of a list in one line of YAML or JSON: `[a, "b"]`.
fn words(list: &str) -> Vec<String> {
    let inner = list.split_once('[').unwrap().1.rsplit_once(']').unwrap().0;
    inner.split(',').map(|word| word.trim().trim_matches('"').to_owned()).collect()
}

/// What follows `key` in each line of a file that has it.
fn values<'t>(text: &'t str, key: &str) -> Vec<&'t str> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines.filter_map(|line| Some(line.split_once(key)?.1.trim())).collect()
}

/// The settings that a file gives to the server: `NAME: "value"`, `{name: NAME, value: "value"}` or `NAME=value`.
pub(crate) fn settings(file: &str) -> Vec<(String, String)> {
    let text = read(file);
    let named = values(&text, "REDLATCH_").into_iter().filter_map(|rest| {
        let (name, value) = rest.split_once([':', ',', '='])?;
        let value = value.trim().trim_start_matches("value:").trim_end_matches(['}', '\\', ' ']).trim();
        Some((format!("REDLATCH_{name}"), value.trim_matches('"').to_owned()))
    });
    named.collect()
}

/// The environments that the unit and the containers give to the program, by their files. The directory is `dir`, ports are
/// free ones, and addresses those of this machine alone.
pub(crate) fn environments(dir: &str) -> Vec<(&'static str, Vec<(String, String)>)> {
    let local = |mut settings: Vec<(String, String)>| -> Vec<(String, String)> {
        for (name, value) in &mut settings {
            match &**name {
                "REDLATCH_DIR" => *value = dir.to_owned(),
                "REDLATCH_BIND" | "REDLATCH_HTTP_BIND" => *value = "127.0.0.1".to_owned(),
                _ => {}
            }
        }
        let ports = ["REDLATCH_PORT", "REDLATCH_HTTP_PORT"].map(|name| (name.to_owned(), "auto".to_owned()));
        settings.into_iter().filter(|(name, _)| name != "REDLATCH_HTTP_PORT").chain(ports).collect()
    };
    let image = settings("Dockerfile");
    let on_image = |file| local([image.clone(), settings(file)].concat());
    let mut kubernetes = on_image("packages/deploy/kubernetes.yaml");
    // It is a secret there.
    kubernetes.push(("REDLATCH_REQUIREPASS".to_owned(), "secret".to_owned()));
    vec![
        ("packages/deploy/redlatch.service", local(settings("packages/deploy/redlatch.service"))),
        ("Dockerfile", local(image.clone())),
        ("packages/deploy/compose.yaml", on_image("packages/deploy/compose.yaml")),
        ("packages/deploy/kubernetes.yaml", kubernetes),
    ]
}

/// What an HTTP port answers to a GET with the password of [`environments`].
pub(crate) fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    // The name is empty, and the password `secret`.
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic OnNlY3JldA==\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
#[cfg(feature = "http")]
fn a_server_with_the_settings_of_units_images_and_manifests_keeps_its_locks() {
    let directory = Directory::new();
    for (number, (file, environment)) in environments(&directory.path("journal")).into_iter().enumerate() {
        let start = || Running::start(redlatch().envs(environment.clone()));
        let server = start();
        let ready = get(&server.address_of("http"), "/readyz");
        assert!(ready.starts_with("HTTP/1.1 200 "), "{file}: {ready}");
        let metrics = get(&server.address_of("http"), "/metrics");
        assert!(metrics.contains("\nredlatch_leads 1\n"), "{file}: {metrics}");
        let login = if file.contains("kubernetes") { "AUTH secret\r\n" } else { "" };
        let lock = format!("{login}SET lock:{number} me NX PX 600000");
        assert!(server.ask(&lock).ends_with("+OK\r\n"), "{file}");
        drop(server);
        let held = start().ask(&lock);
        assert!(held.ends_with("$-1\r\n"), "{file}: {held}");
    }
}

#[test]
fn the_settings_of_units_images_and_manifests_are_good() {
    let directory = Directory::new();
    for (file, count) in [
        ("packages/deploy/compose.yaml", 3),
        ("packages/deploy/kubernetes.yaml", 3),
        ("packages/deploy/redlatch.service", 3),
        ("Dockerfile", 4),
    ] {
        let mut settings = settings(file);
        assert_eq!(settings.len(), count, "{file}: {settings:?}");
        // No name but those of this machine is known here.
        for (name, value) in &mut settings {
            match &**name {
                "REDLATCH_DIR" => *value = directory.path("journal"),
                "REDLATCH_HTTP_BIND" => *value = value.replace(" redlatch", " localhost"),
                _ => {}
            }
        }
        let output = redlatch().arg("check-config").envs(settings.clone()).output().unwrap();
        assert!(output.status.success(), "{file}: {settings:?}: {output:?}");
        assert!(output.stderr.is_empty(), "{file}: {output:?}");
    }
}

/// `REDLATCH_MAXMEMORY=400mb`, `maxmemory: 400mb`, `memory: 512Mi`, `mem_limit: 512m`: the megabytes.
fn megabytes(text: &str, key: &str) -> Vec<u32> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let rests = lines.filter_map(|line| line.rsplit_once(key)).map(|(_, rest)| rest);
    let digits = rests.map(|rest| rest.trim_start_matches(|c: char| !c.is_ascii_digit()));
    digits.map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()).collect()
}

#[test]
fn the_unit_and_the_manifests_limit_the_memory_of_the_server_below_that_of_its_container() {
    for (file, key, limit) in [
        ("redlatch.service", "REDLATCH_MAXMEMORY", None),
        ("compose.yaml", "REDLATCH_MAXMEMORY", Some("mem_limit")),
        ("compose-cluster.yaml", "REDLATCH_MAXMEMORY", Some("mem_limit")),
        ("kubernetes.yaml", "REDLATCH_MAXMEMORY", Some("limits: {memory")),
        ("kubernetes-cluster.yaml", "REDLATCH_MAXMEMORY", Some("limits: {memory")),
        ("chart/values.yaml", "maxmemory", Some("limits: {memory")),
    ] {
        let text = read(&format!("packages/deploy/{file}"));
        let [maxmemory] = megabytes(&text, key)[..] else { panic!("{file} sets no maxmemory, or two") };
        assert!(maxmemory > 0, "{file}");
        if let Some(limit) = limit {
            // What is counted is within a fifth of what the process has.
            let [limit] = megabytes(&text, limit)[..] else { panic!("{file} has no limit, or two") };
            assert!(maxmemory + maxmemory / 5 < limit, "{file}: {maxmemory}, {limit}");
        }
    }
}

#[test]
fn the_unit_checks_and_starts_the_program_that_is_there() {
    let unit = read("packages/deploy/redlatch.service");
    for (key, expected) in [("ExecStartPre=", "check-config"), ("ExecStart=", "")] {
        let command = values(&unit, key)[0];
        assert_eq!(
            command.strip_prefix("/usr/local/bin/redlatch").map(str::trim),
            Some(expected),
            "{command}"
        );
    }
    assert_eq!(values(&unit, "ExecReload="), ["/bin/kill -s HUP $MAINPID"]);
    // The mark of a failed sync outlives the process.
    assert_eq!(values(&unit, "RuntimeDirectory="), ["redlatch"]);
    assert_eq!(values(&unit, "RuntimeDirectoryPreserve="), ["yes"]);
}

#[test]
fn probes_find_the_server_that_their_environment_describes() {
    let kubernetes = read("packages/deploy/kubernetes.yaml");
    let mut probes: Vec<_> = values(&kubernetes, "exec: {command:").into_iter().map(words).collect();
    probes.push(words(values(&read("Dockerfile"), "--retries=3 CMD")[0]));
    assert_eq!(probes.len(), 3);
    let server = Running::start(
        redlatch().args(["--port", "auto", "--http-port", "auto"]).env("REDLATCH_REQUIREPASS", "secret"),
    );
    let address = server.address();
    let (_, port) = address.rsplit_once(':').unwrap();
    for probe in &probes {
        assert_eq!(probe[0], "redlatch");
        let mut command = redlatch();
        command.args(&probe[1..]).env("REDLATCH_PORT", port);
        // A server that refuses the login is alive: the probe says that it did.
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success() && said.contains("NOAUTH"),
            "{probe:?} without the password: {output:?}"
        );
        let output = command.env("REDLATCH_REQUIREPASS", "secret").output().unwrap();
        assert!(output.status.success() && output.stdout.is_empty(), "{probe:?}: {output:?}");
        let output = command.env("REDLATCH_PORT", "1").output().unwrap();
        assert!(!output.status.success(), "{probe:?} of another port: {output:?}");
    }
    #[cfg(feature = "http")]
    {
        let path = values(&kubernetes, "httpGet: {path:")[0].split(',').next().unwrap();
        let mut probe = TcpStream::connect(server.address_of("http")).unwrap();
        probe.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        probe.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.0 200 "), "{answer}");
    }
}

/// A command of kubernetes-election.yaml with its environment, on this server. A shell that writes its lines stands for the
/// program of the user.
fn election(server: &Running, program: &str, script: &str) -> Command {
    let manifest = read("packages/deploy/kubernetes-election.yaml");
    let command =
        values(&manifest, "command:").into_iter().map(words).find(|words| words.last().unwrap() == program);
    let mut words = command.unwrap_or_else(|| panic!("no command ends with {program}"));
    words.pop();
    let url = values(&manifest, "name: REDLATCH_URL, value:")[0].trim_matches(['"', '}']);
    let url = url.replace("$(REDLATCH_PASSWORD)", "secret").replace("redlatch:6379", &server.address());
    assert_eq!(words[0], "redlatch");
    let mut command = redlatch();
    command.args(&words[1..]).args(["sh", "-c", script]).env("REDLATCH_URL", url);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

fn protected() -> Running {
    Running::start(redlatch().args(["--port", "auto", "--requirepass", "secret"]))
}

fn line(process: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

#[test]
fn a_job_that_two_schedules_start_runs_once() {
    let server = protected();
    let job = || election(&server, "/app/report", "echo ran").output().unwrap();
    for expected in ["ran\n", ""] {
        let output = job();
        assert_eq!((output.status.code(), &*String::from_utf8_lossy(&output.stdout)), (Some(0), expected));
    }
}

#[test]
fn a_leader_that_ends_is_followed_by_a_replica_that_waits() {
    let server = protected();
    let start = || election(&server, "/app/billing", "echo leads; cat >/dev/null").spawn().unwrap();
    let mut leader = start();
    assert_eq!(line(&mut leader), "leads");
    let mut follower = start();
    wait_until("one waits", || {
        server.ask("AUTH secret\r\nLOCK.WAITERS leader:billing").starts_with("+OK\r\n*1")
    });
    drop(leader.stdin.take());
    assert!(leader.wait().unwrap().success());
    assert_eq!(line(&mut follower), "leads");
    drop(follower.stdin.take());
    assert!(follower.wait().unwrap().success());
}
