//! Exports about graphs and streams that capture.

use super::exported::exports;
use super::{
    AllocationNode, Argument, Callback, Copy3d, EdgeData, Function, HostFunction, HostNode, In, InOut,
    InSlice, InstantiateParameters, KernelNode, KernelNodeOfContext, MemsetNode, NodeParameters, NullStream,
    Out, OutList, OutMaybe, Room, Row, Text, UpdateResult,
};
use crate::{capture, graph};

exports! {
    plain {
        cuThreadExchangeStreamCaptureMode "cuThreadExchangeStreamCaptureMode" 10010
            (mode: InOut<u32>) => capture::exchange_mode;

        cuGraphCreate "cuGraphCreate" 10000 (to: Out<u64>, flags: u32) => graph::create;
        cuGraphDestroy "cuGraphDestroy" 10000 (graph: u64) => graph::destroy;
        cuGraphClone "cuGraphClone" 10000 (to: Out<u64>, graph: u64) => graph::clone;
        cuGraphNodeFindInClone "cuGraphNodeFindInClone" 10000
            (to: Out<u64>, node: u64, clone: u64) => graph::find_in_clone;
        cuGraphDebugDotPrint "cuGraphDebugDotPrint" 11030
            (graph: u64, path: Text, flags: u32) => graph::print;

        cuGraphAddKernelNode "cuGraphAddKernelNode" 10000
            (to: Out<u64>, graph: u64, before: InSlice<u64>, count: usize, node: In<KernelNode>)
            => graph::add_kernel;
        cuGraphAddKernelNode_v2 "cuGraphAddKernelNode" 12000
            (to: Out<u64>, graph: u64, before: InSlice<u64>, count: usize, node: In<KernelNodeOfContext>)
            => graph::add_kernel_of_context;
        cuGraphAddMemcpyNode "cuGraphAddMemcpyNode" 10000
            (to: Out<u64>, graph: u64, before: InSlice<u64>, count: usize, copy: In<Copy3d>, context: u64)
            => graph::add_copy;
        cuGraphAddMemsetNode "cuGraphAddMemsetNode" 10000
            (to: Out<u64>, graph: u64, before: InSlice<u64>, count: usize, node: In<MemsetNode>, context: u64)
            => graph::add_fill;
        cuGraphAddHostNode "cuGraphAddHostNode" 10000
            (to: Out<u64>, graph: u64, before: InSlice<u64>, count: usize, node: In<HostNode>)
            => graph::add_host;
        cuGraphAddChildGraphNode "cuGraphAddChildGraphNode" 10000
            (to: Out<u64>, graph: u64, before: InSlice<u64>, count: usize, child: u64) => graph::add_child;
        cuGraphAddEmptyNode "cuGraphAddEmptyNode" 10000
            (to: Out<u64>, graph: u64, before: InSlice<u64>, count: usize) => graph::add_empty;
        cuGraphAddEventRecordNode "cuGraphAddEventRecordNode" 11010
            (to: Out<u64>, graph: u64, before: InSlice<u64>, count: usize, event: u64) => graph::add_record;
        cuGraphAddEventWaitNode "cuGraphAddEventWaitNode" 11010
            (to: Out<u64>, graph: u64, before: InSlice<u64>, count: usize, event: u64) => graph::add_wait;
        cuGraphAddMemAllocNode "cuGraphAddMemAllocNode" 11040
            (to: Out<u64>, graph: u64, before: InSlice<u64>, count: usize, node: InOut<AllocationNode>)
            => graph::add_allocation;
        cuGraphAddMemFreeNode "cuGraphAddMemFreeNode" 11040
            (to: Out<u64>, graph: u64, before: InSlice<u64>, count: usize, address: u64) => graph::add_freeing;
        cuGraphMemAllocNodeGetParams "cuGraphMemAllocNodeGetParams" 11040
            (node: u64, to: Out<AllocationNode>) => graph::allocation_parameters;
        cuGraphMemFreeNodeGetParams "cuGraphMemFreeNodeGetParams" 11040
            (node: u64, to: Out<u64>) => graph::freeing_parameters;
        cuDeviceGetGraphMemAttribute "cuDeviceGetGraphMemAttribute" 11040
            (device: i32, attribute: u32, to: Room) => graph::storage_attribute;
        cuDeviceSetGraphMemAttribute "cuDeviceSetGraphMemAttribute" 11040
            (device: i32, attribute: u32, value: Room) => graph::set_storage_attribute;
        cuDeviceGraphMemTrim "cuDeviceGraphMemTrim" 11040 (device: i32) => graph::trim_storage;
        cuGraphAddNode "cuGraphAddNode" 12020
            (to: Out<u64>, graph: u64, before: InSlice<u64>, count: usize, parameters: InOut<NodeParameters>)
            => graph::add_any_1;
        cuGraphAddNode_v2 "cuGraphAddNode" 12030
            (to: Out<u64>, graph: u64, before: InSlice<u64>, edges: InSlice<EdgeData>, count: usize,
             parameters: InOut<NodeParameters>) => graph::add_any;

        cuUserObjectCreate "cuUserObjectCreate" 11030
            (to: Out<u64>, data: Callback, destroy: HostFunction, count: u32, flags: u32) => graph::create_object;
        cuUserObjectRetain "cuUserObjectRetain" 11030 (object: u64, count: u32) => graph::retain_object;
        cuUserObjectRelease "cuUserObjectRelease" 11030 (object: u64, count: u32) => graph::release_object;
        cuGraphRetainUserObject "cuGraphRetainUserObject" 11030
            (graph: u64, object: u64, count: u32, flags: u32) => graph::retain_by_graph;
        cuGraphReleaseUserObject "cuGraphReleaseUserObject" 11030
            (graph: u64, object: u64, count: u32) => graph::release_by_graph;

        cuGraphKernelNodeGetParams "cuGraphKernelNodeGetParams" 10000
            (node: u64, to: Out<KernelNode>) => graph::kernel_parameters;
        cuGraphKernelNodeGetParams_v2 "cuGraphKernelNodeGetParams" 12000
            (node: u64, to: Out<KernelNodeOfContext>) => graph::kernel_parameters_of_context;
        cuGraphKernelNodeSetParams "cuGraphKernelNodeSetParams" 10000
            (node: u64, to: In<KernelNode>) => graph::set_kernel;
        cuGraphKernelNodeSetParams_v2 "cuGraphKernelNodeSetParams" 12000
            (node: u64, to: In<KernelNodeOfContext>) => graph::set_kernel_of_context;
        cuGraphKernelNodeGetAttribute "cuGraphKernelNodeGetAttribute" 11000
            (node: u64, attribute: u32, to: Room) => graph::kernel_attribute;
        cuGraphKernelNodeSetAttribute "cuGraphKernelNodeSetAttribute" 11000
            (node: u64, attribute: u32, value: In<[u32; 16]>) => graph::set_kernel_attribute;
        cuGraphKernelNodeCopyAttributes "cuGraphKernelNodeCopyAttributes" 11000
            (to: u64, from: u64) => graph::copy_kernel_attributes;
        cuGraphMemcpyNodeGetParams "cuGraphMemcpyNodeGetParams" 10000
            (node: u64, to: Out<Copy3d>) => graph::copy_parameters;
        cuGraphMemcpyNodeSetParams "cuGraphMemcpyNodeSetParams" 10000
            (node: u64, to: In<Copy3d>) => graph::set_copy;
        cuGraphMemsetNodeGetParams "cuGraphMemsetNodeGetParams" 10000
            (node: u64, to: Out<MemsetNode>) => graph::fill_parameters;
        cuGraphMemsetNodeSetParams "cuGraphMemsetNodeSetParams" 10000
            (node: u64, to: In<MemsetNode>) => graph::set_fill;
        cuGraphHostNodeGetParams "cuGraphHostNodeGetParams" 10000
            (node: u64, to: Out<HostNode>) => graph::host_parameters;
        cuGraphHostNodeSetParams "cuGraphHostNodeSetParams" 10000
            (node: u64, to: In<HostNode>) => graph::set_host;
        cuGraphChildGraphNodeGetGraph "cuGraphChildGraphNodeGetGraph" 10000
            (node: u64, to: Out<u64>) => graph::child_graph;
        cuGraphEventRecordNodeGetEvent "cuGraphEventRecordNodeGetEvent" 11010
            (node: u64, to: Out<u64>) => graph::recorded_event;
        cuGraphEventRecordNodeSetEvent "cuGraphEventRecordNodeSetEvent" 11010
            (node: u64, event: u64) => graph::set_record;
        cuGraphEventWaitNodeGetEvent "cuGraphEventWaitNodeGetEvent" 11010
            (node: u64, to: Out<u64>) => graph::awaited_event;
        cuGraphEventWaitNodeSetEvent "cuGraphEventWaitNodeSetEvent" 11010
            (node: u64, event: u64) => graph::set_wait;
        cuGraphNodeSetParams "cuGraphNodeSetParams" 12020
            (node: u64, parameters: InOut<NodeParameters>) => graph::set_any;

        cuGraphGetNodes "cuGraphGetNodes" 10000
            (graph: u64, to: OutList<u64>, count: InOut<usize>) => graph::list;
        cuGraphGetRootNodes "cuGraphGetRootNodes" 10000
            (graph: u64, to: OutList<u64>, count: InOut<usize>) => graph::roots;
        cuGraphGetEdges "cuGraphGetEdges" 10000
            (graph: u64, from: OutList<u64>, to: OutList<u64>, count: InOut<usize>) => graph::edges;
        cuGraphGetEdges_v2 "cuGraphGetEdges" 12030
            (graph: u64, from: OutList<u64>, to: OutList<u64>, edges: OutList<EdgeData>, count: InOut<usize>)
            => graph::edges_2;
        cuGraphNodeGetDependencies "cuGraphNodeGetDependencies" 10000
            (node: u64, to: OutList<u64>, count: InOut<usize>) => graph::dependencies;
        cuGraphNodeGetDependencies_v2 "cuGraphNodeGetDependencies" 12030
            (node: u64, to: OutList<u64>, edges: OutList<EdgeData>, count: InOut<usize>)
            => graph::dependencies_2;
        cuGraphNodeGetDependentNodes "cuGraphNodeGetDependentNodes" 10000
            (node: u64, to: OutList<u64>, count: InOut<usize>) => graph::dependents;
        cuGraphNodeGetDependentNodes_v2 "cuGraphNodeGetDependentNodes" 12030
            (node: u64, to: OutList<u64>, edges: OutList<EdgeData>, count: InOut<usize>)
            => graph::dependents_2;
        cuGraphAddDependencies "cuGraphAddDependencies" 10000
            (graph: u64, from: InSlice<u64>, to: InSlice<u64>, count: usize) => graph::add_dependencies;
        cuGraphAddDependencies_v2 "cuGraphAddDependencies" 12030
            (graph: u64, from: InSlice<u64>, to: InSlice<u64>, edges: InSlice<EdgeData>, count: usize)
            => graph::add_dependencies_2;
        cuGraphRemoveDependencies "cuGraphRemoveDependencies" 10000
            (graph: u64, from: InSlice<u64>, to: InSlice<u64>, count: usize) => graph::remove_dependencies;
        cuGraphRemoveDependencies_v2 "cuGraphRemoveDependencies" 12030
            (graph: u64, from: InSlice<u64>, to: InSlice<u64>, edges: InSlice<EdgeData>, count: usize)
            => graph::remove_dependencies_2;
        cuGraphNodeGetType "cuGraphNodeGetType" 10000 (node: u64, to: Out<u32>) => graph::kind;
        cuGraphDestroyNode "cuGraphDestroyNode" 10000 (node: u64) => graph::destroy_node;

        cuGraphInstantiate "cuGraphInstantiate" 10000
            (to: Out<u64>, graph: u64, node: OutMaybe<u64>, log: u64, room: usize)
            => graph::instantiate_with_log;
        cuGraphInstantiate_v2 "cuGraphInstantiate" 11000
            (to: Out<u64>, graph: u64, node: OutMaybe<u64>, log: u64, room: usize)
            => graph::instantiate_with_log;
        cuGraphInstantiateWithFlags "cuGraphInstantiateWithFlags" 11040
            (to: Out<u64>, graph: u64, flags: u64) => graph::instantiate;
        cuGraphExecGetFlags "cuGraphExecGetFlags" 12000 (exec: u64, to: Out<u64>) => graph::exec_flags;
        cuGraphExecDestroy "cuGraphExecDestroy" 10000 (exec: u64) => graph::exec_destroy;
        cuGraphExecUpdate "cuGraphExecUpdate" 10020
            (exec: u64, graph: u64, node: OutMaybe<u64>, to: Out<u32>) => graph::update_1;
        cuGraphExecUpdate_v2 "cuGraphExecUpdate" 12000
            (exec: u64, graph: u64, to: InOut<UpdateResult>) => graph::update;
        cuGraphExecKernelNodeSetParams "cuGraphExecKernelNodeSetParams" 10010
            (exec: u64, node: u64, to: In<KernelNode>) => graph::exec_set_kernel;
        cuGraphExecKernelNodeSetParams_v2 "cuGraphExecKernelNodeSetParams" 12000
            (exec: u64, node: u64, to: In<KernelNodeOfContext>) => graph::exec_set_kernel_of_context;
        cuGraphExecMemcpyNodeSetParams "cuGraphExecMemcpyNodeSetParams" 10020
            (exec: u64, node: u64, to: In<Copy3d>, context: u64) => graph::exec_set_copy;
        cuGraphExecMemsetNodeSetParams "cuGraphExecMemsetNodeSetParams" 10020
            (exec: u64, node: u64, to: In<MemsetNode>, context: u64) => graph::exec_set_fill;
        cuGraphExecHostNodeSetParams "cuGraphExecHostNodeSetParams" 10020
            (exec: u64, node: u64, to: In<HostNode>) => graph::exec_set_host;
        cuGraphExecChildGraphNodeSetParams "cuGraphExecChildGraphNodeSetParams" 11010
            (exec: u64, node: u64, child: u64) => graph::exec_set_child;
        cuGraphExecEventRecordNodeSetEvent "cuGraphExecEventRecordNodeSetEvent" 11010
            (exec: u64, node: u64, event: u64) => graph::exec_set_record;
        cuGraphExecEventWaitNodeSetEvent "cuGraphExecEventWaitNodeSetEvent" 11010
            (exec: u64, node: u64, event: u64) => graph::exec_set_wait;
        cuGraphExecNodeSetParams "cuGraphExecNodeSetParams" 12020
            (exec: u64, node: u64, parameters: InOut<NodeParameters>) => graph::exec_set_parameters;
        cuGraphNodeSetEnabled "cuGraphNodeSetEnabled" 11060
            (exec: u64, node: u64, is_enabled: u32) => graph::set_enabled;
        cuGraphNodeGetEnabled "cuGraphNodeGetEnabled" 11060
            (exec: u64, node: u64, to: Out<u32>) => graph::enabled;
    }
    streams {
        cuStreamBeginCapture "cuStreamBeginCapture" 10000, cuStreamBeginCapture_ptsz 10000
            (stream: u64) => capture::begin_1;
        cuStreamBeginCapture_v2 "cuStreamBeginCapture" 10010, cuStreamBeginCapture_v2_ptsz 10010
            (stream: u64, mode: u32) => capture::begin;
        cuStreamBeginCaptureToGraph "cuStreamBeginCaptureToGraph" 12030, cuStreamBeginCaptureToGraph_ptsz 12030
            (stream: u64, graph: u64, before: InSlice<u64>, edges: InSlice<EdgeData>, count: usize, mode: u32)
            => capture::begin_to_graph;
        cuStreamEndCapture "cuStreamEndCapture" 10000, cuStreamEndCapture_ptsz 10000
            (stream: u64, to: Out<u64>) => capture::end;
        cuStreamIsCapturing "cuStreamIsCapturing" 10000, cuStreamIsCapturing_ptsz 10000
            (stream: u64, to: Out<u32>) => capture::is_capturing;
        cuStreamGetCaptureInfo "cuStreamGetCaptureInfo" 10010, cuStreamGetCaptureInfo_ptsz 10010
            (stream: u64, to: Out<u32>, id: OutMaybe<u64>) => capture::capture_info;
        cuStreamGetCaptureInfo_v2 "cuStreamGetCaptureInfo" 11030, cuStreamGetCaptureInfo_v2_ptsz 11030
            (stream: u64, to: Out<u32>, id: OutMaybe<u64>, graph: OutMaybe<u64>, nodes: OutMaybe<*const u64>,
             count: OutMaybe<usize>) => capture::capture_info_2;
        cuStreamGetCaptureInfo_v3 "cuStreamGetCaptureInfo" 12030, cuStreamGetCaptureInfo_v3_ptsz 12030
            (stream: u64, to: Out<u32>, id: OutMaybe<u64>, graph: OutMaybe<u64>, nodes: OutMaybe<*const u64>,
             edges: OutMaybe<u64>, count: OutMaybe<usize>) => capture::capture_info_3;
        cuStreamUpdateCaptureDependencies "cuStreamUpdateCaptureDependencies" 11030,
            cuStreamUpdateCaptureDependencies_ptsz 11030
            (stream: u64, nodes: InSlice<u64>, count: usize, flags: u32) => capture::update_dependencies;
        cuStreamUpdateCaptureDependencies_v2 "cuStreamUpdateCaptureDependencies" 12030,
            cuStreamUpdateCaptureDependencies_v2_ptsz 12030
            (stream: u64, nodes: InSlice<u64>, edges: InSlice<EdgeData>, count: usize, flags: u32)
            => capture::update_dependencies_2;

        cuGraphInstantiateWithParams "cuGraphInstantiateWithParams" 12000,
            cuGraphInstantiateWithParams_ptsz 12000
            (to: Out<u64>, graph: u64, parameters: InOut<InstantiateParameters>) => graph::instantiate_with;
        cuGraphUpload "cuGraphUpload" 11010, cuGraphUpload_ptsz 11010
            (exec: u64, stream: u64) => graph::upload;
        cuGraphLaunch "cuGraphLaunch" 10000, cuGraphLaunch_ptsz 10000
            (exec: u64, stream: u64) => graph::launch;
    }
}
