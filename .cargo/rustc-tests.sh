#!/bin/sh
# Cargo calls this instead of rustc for the crates of the workspace. Unit tests, and test programs that mostly wait
# for the library under test, are compiled without optimisation: compiling them optimised took a third of a pass
# from nothing. The libraries, and the other test programs, are optimised as the profile says.
rustc=$1
shift
case "$CARGO_PKG_NAME: $* " in
array:*"--crate-name it "* | maildb:*"--crate-name it "* | simulator:*"--crate-name it "* | workload:*"--crate-name it "*) ;;
*" -C opt-level=1 "*" --test "* | *" --test "*" -C opt-level=1 "*) exec "$rustc" "$@" -C opt-level=0 ;;
esac
exec "$rustc" "$@"
