"""`fsdp-migrate verify`: run the original and the converted job and compare them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fsdp_migrate.cli import verify_options as given
from fsdp_migrate.cli.verify_options import ScriptCommand as ScriptCommand
from fsdp_migrate.exit_codes import ExitCode

if TYPE_CHECKING:
    from fsdp_migrate.verify.arms import Progress
    from fsdp_migrate.verify.model import LaunchOptions, ParityReport, VerifyRequest
    from fsdp_migrate.verify.reference_job.config import ReferenceConfig
    from fsdp_migrate.verify.resumed import Resumed


def verify(
    context: typer.Context,
    script: given.Script = None,
    arguments: given.Arguments = None,
    module: given.Module = None,
    baseline: given.Baseline = None,
    checkpoint: given.Checkpoint = None,
    convert: given.Convert = "",
    converted: given.Converted = None,
    record: given.Record = None,
    compare: given.Compare = None,
    digests: given.Digests = False,
    elements: given.Elements = False,
    nproc: given.Nproc = 2,
    nnodes: given.Nnodes = 1,
    rdzv_endpoint: given.Endpoint = "",
    steps: given.Steps = 5,
    device: given.DeviceName = given.DeviceOption.auto,
    timeout: given.Timeout = 300.0,
    keep: given.Keep = None,
    preload: given.Preload = True,
    fixed_order: given.FixedOrder = True,
    measure_noise: given.MeasureNoise = True,
    exact: given.Exact = False,
    third_arm: given.ThirdArm = False,
    as_gpu: given.AsGpu = False,
    profile: given.Profile = False,
    also: given.Also = None,
    simulate_world: given.SimulateWorld = None,
    strict: given.Strict = False,
    output_format: given.Format = given.FormatOption.text,
    output: given.Output = None,
    config: given.Size = given.SizeOption.tiny,
    dtype: given.Dtype = given.DtypeOption.fp32,
    strategy: given.Strategy = given.StrategyOption.full_shard,
    accumulate: given.Accumulate = 1,
    tied: given.Tied = False,
    ac: given.Ac = given.CheckpointingOption.none,
    compile: given.Compile = False,
    offload: given.Offload = False,
    float8: given.Float8 = False,
    tp: given.Parallel = 1,
    cp: given.Parallel = 1,
    pp: given.Parallel = 1,
    save_checkpoint: given.SaveCheckpoint = None,
    batch: given.Batch = 2,
    sequence: given.Sequence = 64,
) -> ExitCode:
    """Run the original and the converted job from the same start and compare them.

    Without SCRIPT the job that pyproject.toml names under [tool.fsdp-migrate.verify] runs, else the bundled
    reference job, a small Llama-style decoder under FSDP1 and FSDP2.
    Exit code 0: parity holds; 1: it does not; 2: bad input; 3: a job failed or hangs.

    Example: fsdp-migrate verify train.py --nproc 4 -- --config small.yaml
    """
    from fsdp_migrate import console
    from fsdp_migrate.cli.verify_checkpoint import resumed
    from fsdp_migrate.cli.verify_refusals import (
        refuse_beside,
        refuse_contradictions,
        refuse_unused,
        refuse_what_cannot_be,
    )
    from fsdp_migrate.cli.verify_settings import Chosen, settled
    from fsdp_migrate.reports.output_file import require_writable
    from fsdp_migrate.verify.model import LaunchOptions
    from fsdp_migrate.verify.reference_job.config import ReferenceConfig

    refuse_beside(context)
    speaks = given.let_first_task_speak()
    require_writable(output)
    screen = console.progress()

    def progress(line: str) -> None:
        if speaks:
            screen.print(f"verify: {line}", markup=False, highlight=False)

    chosen = settled(
        context,
        Chosen(
            script,
            tuple(arguments or ()),
            module,
            baseline,
            nproc,
            steps,
            device.value,
            timeout,
            strict,
            exact,
            checkpoint and checkpoint.absolute(),
            convert,
        ),
    )
    launch = LaunchOptions(
        chosen.nproc,
        nnodes,
        rdzv_endpoint,
        chosen.steps,
        chosen.device,
        chosen.timeout,
        keep,
        preload,
        fixed_order,
        measure_noise,
        third_arm,
        profile or bool(also),
        given.also_measured(also),
        0 if digests else 1 << 30,
        elements,
        as_gpu,
        chosen.exact,
    )
    refuse_contradictions(context, launch)
    if compare is not None:
        from fsdp_migrate.verify.run import compare_records

        return _show(
            compare_records(*compare, progress, exact=chosen.exact),
            chosen.strict,
            output_format.value,
            output,
        )
    refuse_unused(context, reference=chosen.request(launch) is None)
    job = ReferenceConfig(
        size=config.value,
        dtype=dtype.value,
        strategy=strategy.value,
        accumulate=accumulate,
        tied=tied,
        batch=batch,
        sequence=sequence,
        steps=launch.steps,
        ac=ac.value,
        compile=compile,
        offload=offload,
        float8=float8,
        save="" if save_checkpoint is None else str(save_checkpoint.absolute()),
    )
    refuse_what_cannot_be(job, chosen.exact, {"tp": tp, "cp": cp, "pp": pp})
    if simulate_world is not None:
        return _simulate(job, simulate_world, launch, output_format.value, output, progress)
    if record is not None and (request := chosen.request(launch)) is not None:
        return _record(request, record, progress)
    with resumed(chosen, converted, launch, progress) as found:
        report = _run(chosen.request(launch, found), job, launch, progress, found)
    return _show(report, chosen.strict, output_format.value, output)


def _run(
    request: VerifyRequest | None,
    job: ReferenceConfig,
    launch: LaunchOptions,
    progress: Progress,
    checkpoint: Resumed | None,
) -> ParityReport:
    from fsdp_migrate.verify.run import verify_reference, verify_script

    if request is None:
        return verify_reference(job, launch, progress, checkpoint)
    return verify_script(request, progress)


def _show(report: ParityReport, strict: bool, form: str, output: Path | None) -> ExitCode:
    from fsdp_migrate.reports import parity

    parity.show(report, form, output)
    if report.died:
        return ExitCode.JOB_FAILED
    held = report.passed and not (strict and report.warnings)
    return ExitCode.OK if held else ExitCode.NEEDS_YOU


def _record(request: VerifyRequest, destination: Path, progress: Progress) -> ExitCode:
    from fsdp_migrate import console
    from fsdp_migrate.verify.run import record_script

    made = record_script(request, destination, progress)
    size = made.size_bytes / (1 << 20)
    console.results().print(
        f"recorded {made.steps} steps of {request.script} ({made.kind}) on {made.ranks} processes: "
        f"{made.path} ({size:.1f} MiB)",
        markup=False,
        soft_wrap=True,
    )
    return ExitCode.OK


def _simulate(
    job: ReferenceConfig,
    world: int,
    launch: LaunchOptions,
    form: str,
    output: Path | None,
    progress: Progress,
) -> ExitCode:
    from fsdp_migrate.reports import simulated
    from fsdp_migrate.verify.simulate import simulate

    simulated.show(simulate(job, world, launch, progress), form, output)
    return ExitCode.OK
