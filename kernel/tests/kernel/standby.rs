//! Standbys and sessions that do not rest.

use crate::{
    fake::{Asked, Manners},
    harness::{Client, until, with_changed_kernel},
};

#[test]
fn the_end_of_a_standby_is_noticed_while_a_session_does_not_rest() {
    let manners = Manners { has_standby: true, ..Manners::default() };
    with_changed_kernel(
        manners,
        |config| config.limits.standby = true,
        async |harness| {
            let client = Client::new(&harness.directory).await;
            let session = client.open("restless").await.unwrap();
            until(async || harness.fake.starts() == 2).await;
            let opens = || {
                let open =
                    |asked: &Asked| matches!(asked, Asked::Open { session: of, .. } if *of == session.id);
                harness.fake.asked().iter().filter(|asked| open(asked)).count()
            };
            until(async || opens() == 2).await;
            harness.fake.behave(Manners { holds_maps: true, ..manners });
            let (allocated, ()) = tokio::join!(session.allocate(1), async {
                let maps = || harness.fake.asked().iter().any(|asked| matches!(asked, Asked::Map { .. }));
                until(async || maps()).await;
                for standby in 2..5 {
                    // It has the session open, and waits for it to rest.
                    until(async || opens() == standby).await;
                    harness.fake.die();
                    until(async || harness.fake.starts() == u32::try_from(standby).unwrap() + 1).await;
                }
                harness.fake.let_go();
            });
            allocated.unwrap();
        },
    );
}
