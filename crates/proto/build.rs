//! Generates the prost messages from `proto/*.proto`; `protox` parses them, so no `protoc` is needed.

use std::error::Error;

const FILES: [&str; 6] = [
    "shared.proto",
    "hello.proto",
    "call.proto",
    "link.proto",
    "access.proto",
    "engine.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(FILES, ["proto"])?;
    let mut config = prost_build::Config::new();
    // Keys and tokens are slices of the frame they came in.
    config.bytes(["."]);
    config.compile_fds(files)?;
    Ok(())
}
