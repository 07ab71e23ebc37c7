//! Exports about order: streams, events, launches.

use super::exported::exports;
use super::{
    Argument, Callback, Extra, Function, HostFunction, In, IpcHandle, LaunchConfig, NullStream, Out,
    OutMaybe, Parameters, Row, StreamCallback,
};
use crate::{event, fill, host_work, launch, stream};

exports! {
    plain {
        cuStreamCreate "cuStreamCreate" 2000 (to: Out<u64>, flags: u32) => stream::create;
        cuStreamCreateWithPriority "cuStreamCreateWithPriority" 5050
            (to: Out<u64>, flags: u32, priority: i32) => stream::create_with_priority;
        cuStreamDestroy "cuStreamDestroy" 2000 (stream: u64) => stream::destroy;
        cuStreamDestroy_v2 "cuStreamDestroy" 4000 (stream: u64) => stream::destroy;

        cuEventCreate "cuEventCreate" 2000 (to: Out<u64>, flags: u32) => event::create;
        cuEventDestroy "cuEventDestroy" 2000 (event: u64) => event::destroy;
        cuEventDestroy_v2 "cuEventDestroy" 4000 (event: u64) => event::destroy;
        cuEventQuery "cuEventQuery" 2000 (event: u64) => event::query;
        cuEventSynchronize "cuEventSynchronize" 2000 (event: u64) => event::synchronize;
        cuEventElapsedTime "cuEventElapsedTime" 2000
            (to: Out<f32>, start: u64, end: u64) => event::elapsed;
        cuEventElapsedTime_v2 "cuEventElapsedTime" 12080
            (to: Out<f32>, start: u64, end: u64) => event::elapsed;
        cuStreamGetGreenCtx "cuStreamGetGreenCtx" 12040 (stream: u64, to: Out<u64>) => stream::green_context;
        cuCtxRecordEvent "cuCtxRecordEvent" 12050 (context: u64, event: u64) => event::record_context;
        cuCtxWaitEvent "cuCtxWaitEvent" 12050 (context: u64, event: u64) => event::have_context_wait;
        cuIpcGetEventHandle "cuIpcGetEventHandle" 4010 (to: Out<IpcHandle>, event: u64) => event::handle;
        cuIpcOpenEventHandle "cuIpcOpenEventHandle" 4010
            (to: Out<u64>, handle: IpcHandle) => event::open;
    }
    streams {
        cuStreamSynchronize "cuStreamSynchronize" 2000, cuStreamSynchronize_ptsz 7000
            (stream: u64) => stream::synchronize;
        cuStreamQuery "cuStreamQuery" 2000, cuStreamQuery_ptsz 7000 (stream: u64) => stream::query;
        cuStreamWaitEvent "cuStreamWaitEvent" 3020, cuStreamWaitEvent_ptsz 7000
            (stream: u64, event: u64, flags: u32) => event::wait;
        cuStreamGetPriority "cuStreamGetPriority" 5050, cuStreamGetPriority_ptsz 7000
            (stream: u64, to: Out<i32>) => stream::priority;
        cuStreamGetFlags "cuStreamGetFlags" 5050, cuStreamGetFlags_ptsz 7000
            (stream: u64, to: Out<u32>) => stream::flags;
        cuStreamGetId "cuStreamGetId" 12000, cuStreamGetId_ptsz 12000
            (stream: u64, to: Out<u64>) => stream::id;
        cuStreamGetCtx "cuStreamGetCtx" 9020, cuStreamGetCtx_ptsz 9020
            (stream: u64, to: Out<u64>) => stream::context;
        cuStreamGetCtx_v2 "cuStreamGetCtx" 12050, cuStreamGetCtx_v2_ptsz 12050
            (stream: u64, to: Out<u64>, green: OutMaybe<u64>) => stream::context_or_green;
        cuStreamGetDevice "cuStreamGetDevice" 12080, cuStreamGetDevice_ptsz 12080
            (stream: u64, to: Out<i32>) => stream::device;
        cuStreamGetAttribute "cuStreamGetAttribute" 11000, cuStreamGetAttribute_ptsz 11000
            (stream: u64, attribute: u32, to: Out<[u32; 16]>) => stream::attribute;
        cuStreamSetAttribute "cuStreamSetAttribute" 11000, cuStreamSetAttribute_ptsz 11000
            (stream: u64, attribute: u32, value: In<[u32; 16]>) => stream::set_attribute;
        cuStreamCopyAttributes "cuStreamCopyAttributes" 11000, cuStreamCopyAttributes_ptsz 11000
            (to: u64, from: u64) => stream::copy_attributes;
        cuStreamAddCallback "cuStreamAddCallback" 5000, cuStreamAddCallback_ptsz 7000
            (stream: u64, function: StreamCallback, data: Callback, flags: u32) => host_work::add_callback;
        cuLaunchHostFunc "cuLaunchHostFunc" 10000, cuLaunchHostFunc_ptsz 10000
            (stream: u64, function: HostFunction, data: Callback) => host_work::launch;

        cuStreamWriteValue32 "cuStreamWriteValue32" 8000, cuStreamWriteValue32_ptsz 8000
            (stream: u64, to: u64, value: u32, flags: u32) => fill::write_value;
        cuStreamWriteValue32_v2 "cuStreamWriteValue32" 11070, cuStreamWriteValue32_v2_ptsz 11070
            (stream: u64, to: u64, value: u32, flags: u32) => fill::write_value;

        cuEventRecord "cuEventRecord" 2000, cuEventRecord_ptsz 7000
            (event: u64, stream: u64) => event::record;
        cuEventRecordWithFlags "cuEventRecordWithFlags" 11010, cuEventRecordWithFlags_ptsz 11010
            (event: u64, stream: u64, flags: u32) => event::record_with_flags;

        cuLaunchKernel "cuLaunchKernel" 4000, cuLaunchKernel_ptsz 7000
            (function: u64, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
             shared_bytes: u32, stream: u64, parameters: Parameters, extra: Extra) => launch::launch;
        cuLaunchKernelEx "cuLaunchKernelEx" 11060, cuLaunchKernelEx_ptsz 11060
            (config: In<LaunchConfig>, function: u64, parameters: Parameters, extra: Extra) => launch::launch_with;
        cuLaunchCooperativeKernel "cuLaunchCooperativeKernel" 9000, cuLaunchCooperativeKernel_ptsz 9000
            (function: u64, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
             shared_bytes: u32, stream: u64, parameters: Parameters) => launch::launch_cooperative;
    }
}
