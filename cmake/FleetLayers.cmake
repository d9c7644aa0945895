# Which library may depend on which. fleet_add_library fails on an edge that is not listed here;
# tests/tree holds the #include lines against the same table.
#
# A line is: library: libraries that it may name directly.
set(FLEET_LAYERS
  "base:"
  "fluid_core: base"
  "fluid_tables: base fluid_core"
  "fluid_program: base fluid_core"
  "fluid_ops: base fluid_core fluid_tables fluid_program"
  "fluid_kernels: base fluid_core fluid_tables fluid_program fluid_ops"
  "fluid_backward: base fluid_core fluid_program fluid_ops"
  "fluid_layers: base fluid_core fluid_tables fluid_program fluid_ops"
  "fluid_mixed_precision: base fluid_core fluid_program fluid_ops fluid_backward fluid_layers fluid_optimizer"
  "fluid_optimizer: base fluid_core fluid_program fluid_ops fluid_backward fluid_layers"
  "fluid_executor: base fluid_core fluid_tables fluid_program fluid_ops fluid_kernels fluid_data_formats"
  "fluid_data_formats: base fluid_core"
  "fluid_data: base fluid_core fluid_data_formats fluid_executor"
  "fluid_io: base fluid_core fluid_tables fluid_program fluid_ops fluid_kernels fluid_executor"
  "transport_link: base"
  "transport_session: base transport_link"
  "transport_sim: base transport_link transport_session"
  "transport_rpc: base transport_session"
  "transport_coordinator: base transport_session transport_rpc"
  "transport_mpi_session: base"
  "transport_collective: base"
  "transport_mpi: base transport_collective transport_mpi_session"
  "transport_socket_collective: base transport_link transport_session transport_rpc transport_collective"
  "transport_shared_collective: base transport_session transport_collective transport_socket_collective"
  "transport_nccl: base transport_collective"
  "cluster_spec: base"
  "role_maker: base cluster_spec transport_mpi_session"
  "transpiler: base fluid_core fluid_program fluid_ops cluster_spec"
  "strategies_dump: base fluid_core fluid_program fluid_io cluster_spec transpiler"
  "strategies_config: base"
  "strategies_runtime: base fluid_core fluid_program fluid_kernels fluid_mixed_precision cluster_spec strategies_config"
  "strategies_parameter_server: base fluid_core fluid_program fluid_kernels transport_link transport_session transport_coordinator"
  "strategies_parameter_server_protocol: base fluid_core fluid_tables fluid_ops fluid_kernels transport_session strategies_parameter_server"
  "strategies_parameter_server_client: base fluid_core fluid_kernels transport_link transport_session transport_rpc transport_coordinator strategies_parameter_server strategies_parameter_server_protocol"
  "strategies_parameter_server_worker: base fluid_core fluid_tables fluid_program fluid_ops fluid_kernels fluid_executor transport_link strategies_runtime strategies_parameter_server strategies_parameter_server_protocol strategies_parameter_server_client"
  "strategies_parameter_server_server: base fluid_core fluid_tables fluid_program fluid_ops fluid_kernels fluid_executor fluid_io transport_link transport_session transport_rpc transport_coordinator strategies_runtime strategies_parameter_server strategies_parameter_server_protocol"
  "strategies_collective: base fluid_core fluid_program fluid_ops fluid_kernels transport_link transport_session transport_coordinator transport_collective transport_mpi transport_nccl transport_socket_collective transport_shared_collective cluster_spec"
  "strategies_jobs: base fluid_core fluid_program fluid_ops fluid_kernels fluid_executor transport_link transport_session transport_coordinator transport_collective transport_mpi_session cluster_spec transpiler strategies_config strategies_dump strategies_runtime strategies_parameter_server strategies_parameter_server_worker strategies_parameter_server_server strategies_collective"
  "strategies: base fluid_core fluid_tables fluid_program fluid_ops fluid_mixed_precision fluid_executor cluster_spec transpiler strategies_config strategies_runtime strategies_parameter_server strategies_parameter_server_worker strategies_collective strategies_jobs"
  "fleet: base fluid_core fluid_tables fluid_program fluid_ops fluid_kernels fluid_backward fluid_layers fluid_optimizer fluid_mixed_precision fluid_executor fluid_data fluid_io cluster_spec role_maker transpiler strategies_dump strategies_parameter_server strategies_runtime strategies_jobs strategies fluid_data_formats"
  "launch: base cluster_spec transport_link transport_session transport_rpc transport_coordinator"
  "tools: base"
  "tools_explain: base fluid_core fluid_program fluid_ops fluid_kernels fluid_executor fluid_io transpiler strategies_dump tools"
  "tools_comm_bench: base transport_collective cluster_spec role_maker strategies_config strategies_parameter_server strategies_jobs fleet tools"
  "tools_inspect: base fluid_core fluid_tables fluid_io tools"
  "tools_make_criteo: base tools"
  "experiments: base fluid_core fluid_program fluid_ops fluid_backward fluid_layers fluid_executor fluid_optimizer fluid_data strategies_parameter_server strategies_parameter_server_protocol strategies_collective tools"
)

function(fleet_check_edge library dependency)
  foreach(line IN LISTS FLEET_LAYERS)
    if(line MATCHES "^([a-z_]+):(.*)$")
      if(CMAKE_MATCH_1 STREQUAL library)
        string(STRIP "${CMAKE_MATCH_2}" allowed)
        string(REPLACE " " ";" allowed "${allowed}")
        if(NOT dependency IN_LIST allowed)
          message(FATAL_ERROR "Layer violation: '${library}' may not depend on '${dependency}'. "
            "Allowed: ${allowed}. The table is cmake/FleetLayers.cmake.")
        endif()
        return()
      endif()
    endif()
  endforeach()
  message(FATAL_ERROR "Library '${library}' has no line in cmake/FleetLayers.cmake.")
endfunction()
