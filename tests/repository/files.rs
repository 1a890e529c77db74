//! What a stranger finds first: the changelog, the guide for contributors, the workflow, the site. They say what is so.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::repository::tidy::{is_test, sources};

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The steps of a list of .ci/run.
fn list(name: &str) -> BTreeSet<String> {
    let (text, head) = (read(".ci/run"), format!("readonly {name}=("));
    let (_, rest) = text.split_once(&head).expect("a list of steps");
    rest.split_once(')').expect("its end").0.split_whitespace().map(str::to_owned).collect()
}

/// The steps of .ci/run: its files, each of which is in a list or on demand.
fn steps() -> BTreeSet<String> {
    let steps: BTreeSet<String> =
        ["FAST", "WHOLE", "NIGHTLY", "ON_DEMAND"].into_iter().flat_map(list).collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(".ci/steps");
    let files = std::fs::read_dir(folder).expect("the folder of steps");
    let files = files.map(|file| file.expect("a step").file_name().display().to_string());
    assert_eq!(steps, files.collect(), "each step is a file that .ci/run names");
    steps
}

/// The tests that a bare `cargo test` leaves out, each by its file and name, and for what reason.
fn ignored() -> Vec<(String, &'static str)> {
    let mut tests = Vec::new();
    for source in sources() {
        let file = source.path.trim_start_matches("tests/").trim_end_matches(".rs").replace('/', "::");
        let lines: Vec<&str> = source.text.lines().collect();
        for pair in lines.windows(2) {
            let [attribute, head] = pair else { continue };
            let reason =
                attribute.trim().strip_prefix("#[ignore = \"").and_then(|rest| rest.strip_suffix("\"]"));
            let name = head.trim().strip_prefix("fn ").and_then(|rest| rest.split_once('('));
            tests.extend(reason.zip(name).map(|(reason, (name, _))| (format!("{file}::{name}"), reason)));
        }
    }
    tests
}

/// The words by which the steps of .ci/run choose tests among those that are ignored.
fn filters() -> BTreeSet<String> {
    let files = steps().into_iter().map(|step| read(&format!(".ci/steps/{step}")));
    let text = files.collect::<String>().replace("\\\n", " ");
    let commands = text.lines().filter(|line| line.contains("ignored"));
    let options = commands.filter_map(|line| line.split_once(" -- ")).map(|(_, options)| options);
    let mut filters = BTreeSet::new();
    for option in options {
        let words: Vec<&str> = option.split_whitespace().collect();
        let chosen = words.iter().enumerate().filter(|(at, _)| *at == 0 || words[at - 1] != "--skip");
        // A number is that of the threads.
        let names =
            chosen.map(|(_, word)| *word).filter(|word| word.len() > 2 && !word.starts_with(['-', '"']));
        filters.extend(names.map(str::to_owned));
    }
    filters
}

#[test]
fn every_test_that_a_bare_run_leaves_out_has_a_step() {
    let (tests, filters) = (ignored(), filters());
    assert!(tests.len() > 30, "{tests:?}");
    let is_chosen = |name: &str| filters.iter().any(|filter| name.contains(filter));
    assert!(!is_chosen("tools::of_no_step"), "{filters:?}");
    let is_for_people = |reason: &str| reason.starts_with("rewrites ") || reason.starts_with("a program ");
    let left = tests.iter().filter(|(name, reason)| !is_chosen(name) && !is_for_people(reason));
    let left: Vec<&str> = left.map(|(name, _)| name.as_str()).collect();
    assert!(left.is_empty(), "no step runs {left:?}");
}

/// The words between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn the_changelog_has_the_version_of_the_manifest_and_names_tests_that_are_there() {
    let text = read("CHANGELOG.md");
    let version = env!("CARGO_PKG_VERSION");
    let is_released = text.contains(&format!("\n## [{version}]"));
    assert!(is_released || text.contains(&format!("the next version is the first, {version}")), "{version}");

    let (_, policy) = text.split_once("\n## Compatibility\n").expect("the policy");
    let rows: Vec<&str> = policy.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    for what in ["wire", "journal", "replicated log", "settings", "Rust", "Rust version"] {
        assert!(
            rows.iter().any(|row| row.starts_with(&format!("| {what}"))),
            "the policy says nothing of {what}"
        );
    }
    for row in rows {
        let tests = row.trim_end_matches(" |").rsplit_once("| ").expect("a column of tests").1;
        assert!(tests == "-" || quoted(tests).count() > 0, "no test: {row}");
        quoted(tests).for_each(|name| assert!(is_test(name), "no test is called {name}"));
    }
}

#[test]
fn the_guide_explains_every_step_and_a_forge_runs_each() {
    let guide = read("CONTRIBUTING.md");
    let rows = guide.lines().filter(|line| line.starts_with("| `"));
    let explained: BTreeSet<&str> = rows.filter_map(|row| row.split('|').nth(1)).flat_map(quoted).collect();
    let missing: Vec<_> = steps().into_iter().filter(|step| !explained.contains(step.as_str())).collect();
    assert!(missing.is_empty(), "CONTRIBUTING.md does not explain {missing:?}");

    let workflow = read(".github/workflows/ci.yml");
    let (_, matrix) = workflow.split_once("        steps:\n").expect("the steps of each job");
    let jobs = matrix.lines().map_while(|line| line.strip_prefix("          - "));
    let run: Vec<&str> = jobs.flat_map(str::split_whitespace).collect();
    let set: BTreeSet<String> = run.iter().map(|step| (*step).to_owned()).collect();
    assert_eq!(set.len(), run.len(), "no step is run by two jobs");
    let mut expected: BTreeSet<String> = ["FAST", "WHOLE", "ON_DEMAND"].into_iter().flat_map(list).collect();
    // A sample is a part of another step.
    expected.retain(|step| !step.starts_with("sample-"));
    assert_eq!(set, expected, "each step is run by one job");
    let nightly = read(".github/workflows/nightly.yml");
    assert!(nightly.contains(".ci/run nightly") && nightly.contains("cron:"), "the others at night");
}

#[test]
fn the_history_of_nightly_runs_can_be_read() {
    for line in read("benches/history.jsonl").lines() {
        let run: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
        for name in ["operations", "seeds", "inputs", "faults", "violations", "seed"] {
            assert!(run[name].is_u64(), "{name} in {line}");
        }
        let parts = run["parts"].as_object().expect("the steps");
        assert!(parts.values().all(|part| part["passed"].is_boolean()), "{line}");
        assert!(run["revision"].is_string() && run["date"].is_string(), "{line}");
    }
}

#[test]
fn the_site_has_every_page_of_the_documentation_once() {
    let summary = read("docs/SUMMARY.md");
    let mut listed: Vec<&str> =
        summary.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    listed.sort_unstable();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let files =
        std::fs::read_dir(folder).expect("the folder docs").map(|file| file.expect("a file").file_name());
    let mut pages: Vec<String> = files.map(|name| name.display().to_string()).collect();
    pages.retain(|name| name.ends_with(".md") && name != "SUMMARY.md");
    pages.sort_unstable();
    assert_eq!(listed, pages);
    assert!(read("book.toml").contains("\nsrc = \"docs\"\n"));
}

#[test]
fn the_oldest_rust_is_no_older_than_dependencies_need() {
    let output = Command::new(env!("CARGO"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["metadata", "--format-version", "1", "--locked", "--all-features"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .output()
        .expect("cargo, which runs this, starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    let number = |version: &str| -> Vec<u32> { version.split('.').take(2).flat_map(str::parse).collect() };
    let own = env!("CARGO_PKG_RUST_VERSION");
    assert!(read("README.md").contains(&format!("With Rust {own} or newer")), "README.md names Rust {own}");
    assert!(
        read("CONTRIBUTING.md").contains(&format!("`cargo +{own}.0 check")),
        "the guide checks Rust {own}"
    );
    for package in metadata["packages"].as_array().expect("packages") {
        if let Some(needed) = package["rust_version"].as_str() {
            assert!(number(needed) <= number(own), "{} needs Rust {needed}", package["name"]);
        }
    }
}

#[test]
fn actions_and_the_base_of_the_image_are_named_by_digest_and_a_release_has_every_target() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(".github/workflows");
    let is_digest =
        |text: &str, digits| text.len() == digits && text.chars().all(|digit| digit.is_ascii_hexdigit());
    for file in std::fs::read_dir(folder).expect("the folder of workflows") {
        let file = format!(".github/workflows/{}", file.expect("a workflow").file_name().display());
        for action in read(&file).split("uses: ").skip(1).filter_map(|rest| rest.split_whitespace().next()) {
            let digest = action.split_once('@').expect("a version").1;
            assert!(is_digest(digest, 40), "{file}: {action} is a tag, which may move");
        }
    }
    let dockerfile = read("Dockerfile");
    let bases = dockerfile.lines().filter_map(|line| line.strip_prefix("FROM ")?.split(' ').next());
    for base in bases.filter(|base| *base != "scratch") {
        let digest =
            base.split_once("@sha256:").unwrap_or_else(|| panic!("{base} is a tag, which may move")).1;
        assert!(is_digest(digest, 64), "{base}");
    }

    let (workflow, targets) = (read(".github/workflows/release.yml"), read("packages/release/targets.py"));
    for triple in targets.split("    Target(\"").skip(1).filter_map(|rest| rest.split('"').next()) {
        assert!(workflow.contains(triple), "release.yml does not build for {triple}");
        assert!(read(".cargo/deny.toml").contains(triple), "deny.toml does not look at {triple}");
    }
    let versions = workflow.split("toolchain install ").skip(1).chain(workflow.split("default ").skip(1));
    let versions: BTreeSet<&str> = versions.filter_map(|rest| rest.split_whitespace().next()).collect();
    assert!(versions.len() == 1 && versions.iter().all(|rust| rust.split('.').count() == 3), "{versions:?}");
    let packages = workflow.split("pip install ").skip(1).filter_map(|rest| rest.lines().next());
    for package in packages.flat_map(str::split_whitespace) {
        assert!(package.contains("=="), "release.yml: {package} is of any version");
    }
}

#[test]
fn the_image_to_push_is_that_of_a_release_which_has_all_licences() {
    for file in ["Dockerfile", "docs/deploy.md", "packages/deploy/chart/values.yaml"] {
        assert!(read(file).contains("`packages/release.py --image`"), "{file}");
    }
    for file in ["packages/deploy/kubernetes.yaml", "packages/deploy/kubernetes-cluster.yaml"] {
        assert!(!read(file).contains("docker build"), "{file}");
    }
}

/// The names between the braces of a `pub use`.
fn exported(text: &str) -> BTreeSet<String> {
    let lists = text.split("pub use ").skip(1).filter_map(|rest| rest.split(';').next());
    let names = lists.flat_map(|list| list.rsplit("::").next().unwrap_or(list).split(['{', '}', ',']));
    names.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
}

#[test]
fn the_library_gives_all_of_the_lock_client_and_names_every_feature_and_crate() {
    let (library, client) = (read("src/lib.rs"), read("crates/client/src/lib.rs"));
    let (_, lock) = library.split_once("pub mod lock {").expect("the module");
    let (lock, _) = lock.split_once("\n}\n").expect("its end");
    let (client, _) = client.split_once("#[doc(hidden)]").expect("what is no interface is last");
    assert_eq!(exported(lock), exported(client));

    let manifest = read("Cargo.toml");
    let (_, features) = manifest.split_once("\n[features]\n").expect("the features");
    let (features, _) = features.split_once("\n\n").expect("their end");
    let names = features.lines().filter_map(|line| line.split_once(" = ")).map(|(name, _)| name);
    for name in names.filter(|name| *name != "default" && !name.starts_with('#')) {
        assert!(library.contains(&format!("`{name}`")), "src/lib.rs does not name the feature {name}");
    }
    for name in published() {
        assert!(library.contains(&format!("//! redlatch-{name} ")), "src/lib.rs does not name {name}");
    }
}

/// The folders of `crates/` whose crates are published.
fn published() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates");
    let names = std::fs::read_dir(folder).expect("the folder of crates");
    let names = names.map(|file| file.expect("a crate").file_name().display().to_string());
    let crates = names.filter(|name| name != "README.md");
    crates
        .filter(|name| !read(&format!("crates/{name}/Cargo.toml")).contains("\npublish = false\n"))
        .collect()
}

#[test]
fn every_crate_has_licences_a_page_the_place_of_the_project_and_documents_of_all_features() {
    let folders = published().into_iter().map(|name| format!("crates/{name}/"));
    for folder in folders.chain([String::new()]) {
        let manifest = read(&format!("{folder}Cargo.toml"));
        let has = |field: &str| manifest.contains(&format!("\n{field}\n"));
        assert!(
            has("[package.metadata.docs.rs]\nall-features = true"),
            "{folder}: docs.rs builds the default features"
        );
        for field in ["repository", "homepage"] {
            assert!(has(&format!("{field}.workspace = true")), "{folder}: {field}");
        }
        assert!(manifest.contains("\nreadme") || folder == "crates/client/", "{folder}: a page");
        for file in ["LICENSE-APACHE", "LICENSE-MIT"] {
            assert_eq!(read(&format!("{folder}{file}")), read(file), "{folder}: {file}");
        }
    }
}

/// The folders below this one that have a `go.mod` of a module that others import.
fn go_modules(folder: &Path) -> Vec<PathBuf> {
    let manifest = std::fs::read_to_string(folder.join("go.mod")).unwrap_or_default();
    let is_imported = manifest.starts_with("module redlatch.dev/")
        && !["tests", "examples"].iter().any(|name| folder.ends_with(name));
    let mut modules: Vec<PathBuf> = is_imported.then(|| folder.to_owned()).into_iter().collect();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        if entry.file_type().expect("its type").is_dir() && entry.file_name() != "node_modules" {
            modules.extend(go_modules(&entry.path()));
        }
    }
    modules
}

#[test]
fn every_go_module_has_licences_that_its_zip_keeps() {
    let modules = go_modules(&Path::new(env!("CARGO_MANIFEST_DIR")).join("packages"));
    assert_eq!(modules.len(), 3, "{modules:?}");
    for file in
        modules.iter().flat_map(|folder| ["LICENSE-APACHE", "LICENSE-MIT"].map(|name| folder.join(name)))
    {
        let kind =
            std::fs::symlink_metadata(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert!(kind.is_file(), "{}: Go leaves out links", file.display());
        let root = read(&file.file_name().expect("a name").display().to_string());
        assert_eq!(std::fs::read_to_string(&file).expect("a text"), root, "{}", file.display());
    }
}
