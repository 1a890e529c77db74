//! The `redlatch` binary. It holds no logic: see [`redlatch::cli`].

/// Interpreted scripts take and give back many small pieces: with this they cost 5 to 9 percent less.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    redlatch::cli::main()
}
