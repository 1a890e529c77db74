//! The `redlatch` binary. It holds no logic: see [`redlatch::cli`].

// musl's own allocator serves one thread at a time.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    redlatch::cli::main()
}
