//! `shardflow-relay`: reads the settings, starts what was asked for, and stops it on SIGTERM or SIGINT.

use std::fmt::Display;
use std::process::ExitCode;

use clap::Parser;
use shardflow_relay::config::{Cli, Command, Problems, ServeConfig, WanlinkConfig};
use shardflow_relay::limits;
use shardflow_relay::probe;
use shardflow_relay::serve::Relay;
use shardflow_relay::shutdown::{self, StopSignals};
use shardflow_relay::wanlink::Wanlink;
use tracing::{error, info};

/// `EX_USAGE` of sysexits.h: the settings are wrong, so starting again will not help.
const EXIT_USAGE: u8 = 64;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // A closed standard output is no reason to fail `--help`.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { EXIT_USAGE } else { 0 });
        }
    };
    tracing_subscriber::fmt().json().flatten_event(true).with_target(false).init();
    match cli.command {
        Command::Serve(args) => start(args.check(), serve),
        Command::Wanlink(args) => start(args.check(), wanlink),
        Command::Probe { admin } => match probe::ready(admin) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error),
        },
    }
}

fn start<C>(config: Result<C, Problems>, run: impl AsyncFnOnce(C) -> std::io::Result<()>) -> ExitCode {
    let config = match config {
        Ok(config) => config,
        Err(problems) => {
            for problem in problems {
                error!(problem, "bad configuration");
            }
            return ExitCode::from(EXIT_USAGE);
        }
    };
    // One thread: with more, an idle one would be woken for each packet that the busy one is about to splice anyway,
    // which costs a third of the relay's time; one core carries more than the network of the machines it runs on.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error),
    };
    match runtime.block_on(run(config)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn fail(error: &dyn Display) -> ExitCode {
    error!(%error, "failed");
    ExitCode::FAILURE
}

async fn serve(config: ServeConfig) -> std::io::Result<()> {
    let files_max = limits::raise_file_limit();
    let mut signals = StopSignals::catch()?;
    let (trigger, shutdown) = shutdown::channel();
    let relay = Relay::bind(&config, shutdown).await?;
    info!(files_max, routes = config.routes.len(), "serving");
    let mut running = std::pin::pin!(relay.run());
    tokio::select! {
        () = &mut running => return Ok(()),
        () = signals.next() => trigger.raise(),
    }
    tokio::select! {
        () = running => {}
        () = signals.next() => info!("told twice, not draining"),
    }
    Ok(())
}

async fn wanlink(config: WanlinkConfig) -> std::io::Result<()> {
    limits::raise_file_limit();
    let mut signals = StopSignals::catch()?;
    let link = Wanlink::bind(&config).await?;
    tokio::select! {
        () = link.run() => {}
        () = signals.next() => info!("stopped"),
    }
    Ok(())
}
