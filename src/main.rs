//! The `redlatch` binary. It holds no logic: see `src/cli/`.

#[global_allocator]
static ALLOCATOR: redlatch::internals::cli::Allocator = redlatch::internals::cli::Allocator;

fn main() -> std::process::ExitCode {
    redlatch::internals::cli::main()
}
