//! Random commands: each is answered.

use crate::scene::{Initiator, properties, with_unit};
use iscsi::scsi::{
    commands::SUPPORTED_COMMANDS,
    unit::{CommandStatus, ResponseData},
};

#[test]
fn any_command_with_any_data_is_answered() {
    for seed in 0..40 {
        with_unit(seed, properties(), |world, unit| async move {
            let initiators = [Initiator::awake(&unit, "a").await, Initiator::awake(&unit, "b").await];
            let mut random = world.random("commands");
            let mut done = 0;
            for _ in 0..500 {
                let mut cdb = vec![0; 1 + random.below(16) as usize];
                random.fill(&mut cdb);
                if random.percent(90.0) {
                    // A supported command, mostly without reserved bits.
                    let known = &SUPPORTED_COMMANDS[random.below(SUPPORTED_COMMANDS.len() as u64) as usize];
                    cdb.resize(known.usage.len(), 0);
                    cdb.iter_mut().zip(known.usage).for_each(|(byte, usage)| *byte &= usage);
                    (cdb[0], cdb[1]) =
                        (known.code, (cdb[1] & 0xe0) | known.service_action.unwrap_or(0) as u8);
                    // Small numbers, so that many are in range.
                    cdb[2..]
                        .iter_mut()
                        .for_each(|byte| *byte = if *byte & 0x30 == 0 { *byte & 0x1f } else { 0 });
                }
                let mut data = vec![0; [0, 8, 24, 512, 1024, 4096][random.below(6) as usize]];
                random.fill(&mut data);
                let ended = initiators[random.below(2) as usize].execute(&unit, &cdb, &data).await;
                if let CommandStatus::Good(ResponseData::Parameters(bytes)) = &ended {
                    assert!(bytes.len() < 1 << 16, "{cdb:?}");
                }
                done += u32::from(matches!(ended, CommandStatus::Good(_)));
            }
            assert!(done > 20, "seed {seed}: {done} were done");
        });
    }
}
