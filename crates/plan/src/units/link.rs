//! What a line between sites carries.

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
