use super::arguments::FindingArguments;
use crate::{console::Console, exit_status::ExitStatus, server::place::ServerPlace};
use report::Refusal;
use world::World;

pub async fn find(
    _world: &World,
    _arguments: &FindingArguments,
    _place: &ServerPlace,
    _console: &Console,
) -> Result<ExitStatus, Refusal> {
    todo!()
}
