//! Bandwidth of lines between sites.

use super::quantity::quantity;

quantity!(
    /// Rate of a line, in millions of bits a second.
    MegabitsPerSecond,
    "Mb/s"
);

quantity!(
    /// A span of time.
    Milliseconds,
    "ms"
);
