//! The site of `spindle serve` without a file: a pool in files, a volume, and a target with a secret on loopback.

use crate::{console::Console, export::new_secret};
use control::DaemonJournal;
use report::Refusal;
use std::path::Path;
use world::{
    World,
    real::host_files::{self, PathKind},
};

const SECRET_FILE: &str = "demonstration-secret";
const INITIATOR: &str = "iqn.2026-11.org.example:demonstration";
const TARGET: &str = "iqn.2026-11.org.spindle:demonstration";

pub const TEXT: &str = "\
# A demonstration, made by 'spindle serve': change it, and send the server SIGHUP, or start it again.
# docs/site.md describes every key.
name = \"demonstration\"

# Eight drives as files beside this one: they show how a pool works, and protect nothing.
# For real drives: devices = [\"/dev/disk/by-id/...\", ...], before the pool is made.
[[group]]
name = \"demonstration\"
raid = \"raid10\"
drives = 7
spares = 1
drive_gb = 0.5

[[volume]]
name = \"store\"
role = \"other\"
group = \"demonstration\"
gb = 1.0

[[target]]
name = \"demonstration\"

[[target.unit]]
number = 0
volume = \"store\"

[[initiator]]
name = \"iqn.2026-11.org.example:demonstration\"
user = \"demonstration\"
secret_file = \"demonstration-secret\"
uses = [\"demonstration\"]

[[nbd]]
name = \"store\"
volume = \"store\"
";

/// Writes the site file and its secret, unless the state folder is that of another site.
pub fn begin(
    (world, console): (&World, &Console),
    (state, file): (&Path, &Path),
    journal: &DaemonJournal,
) -> Result<(), Refusal> {
    if journal.served_site().map_err(|error| error.refusal())?.is_some() {
        let problem = format!("{} is the state folder of a site whose file is elsewhere", state.display());
        return Err(Refusal::new(problem, "name its file, or print it with 'spindle site'"));
    }
    let refused =
        |error: world::IoError| Refusal::new(error.to_string(), "name another folder with ⟨state⟩ FOLDER");
    host_files::write_secret(&state.join(SECRET_FILE), new_secret(world).as_bytes()).map_err(refused)?;
    host_files::write_atomically(file, TEXT.as_bytes()).map_err(refused)?;
    console.say(&format!("no site file was given: a demonstration is written to {}", file.display()));
    Ok(())
}

/// Removes the file and the secret again, if nothing was made of them.
pub fn take_back(state: &Path, file: &Path) {
    if matches!(host_files::kind(&state.join("pools")), Ok(PathKind::Missing)) {
        // The refusal is the news.
        let _ = host_files::remove_file(file);
        let _ = host_files::remove_file(&state.join(SECRET_FILE));
    }
}

/// Prints how to use the demonstration, if the file is one.
pub fn show_use(file: &Path, console: &Console) {
    let secret = file.with_file_name(SECRET_FILE);
    let is_demonstration = host_files::read_to_string(file).is_ok_and(|text| text == TEXT);
    if !is_demonstration {
        return;
    }
    let secret = secret.display();
    console.say("try it:");
    console.say("  nbdinfo nbd://127.0.0.1/store");
    console.say(&format!("  iscsi-ls -i {INITIATOR} -s \"iscsi://demonstration%$(cat {secret})@127.0.0.1\""));
    console.say(&format!(
        "  qemu-io -c 'read 0 4k' --object secret,id=s,file={secret} \\\n    --image-opts \
         driver=iscsi,transport=tcp,portal=127.0.0.1,target={TARGET},lun=0,user=demonstration,password-secret=s,\
         initiator-name={INITIATOR}"
    ));
}
