package robotsim

import "slices"

// Operation is one simulated operation.
type Operation struct {
	Method string
	Path   string // with {names} for values, as in http.ServeMux
	// Quota is the number of requests allowed per hour.
	Quota int
	// Errors are the codes documented for the operation. Every operation also returns
	// UNAUTHORIZED, RATE_LIMIT_EXCEEDED, and 503 during a maintenance.
	Errors []string
}

// Name returns the key of the operation for quotas and faults: "GET /server".
func (o Operation) Name() string { return o.Method + " " + o.Path }

type operation struct {
	Operation
	do endpoint
}

// Operations returns all simulated operations.
func Operations() []Operation {
	var all []Operation
	for _, op := range operations() {
		all = append(all, op.Operation)
	}
	return all
}

// Unreachable returns the codes of internal failures, which occur only as injected faults.
func Unreachable() []string {
	return []string{codeInternal, codeResetFailed, codeFailoverNotComplete}
}

// operations returns all simulated operations. Other operations return 404.
func operations() []operation {
	return slices.Concat(serverOperations(), resetOperations(), failoverOperations(), vSwitchOperations())
}

func row(method, path string, quota int, do endpoint, errors ...string) operation {
	return operation{Operation{method, path, quota, errors}, do}
}

func serverOperations() []operation {
	return []operation{
		row("GET", "/server", 200, (*call).listServers, codeServerNotFound),
		row("GET", "/server/{server}", 200, (*call).getServer, codeServerNotFound),
		row("POST", "/server/{server}", 200, (*call).renameServer, codeInvalid, codeServerNotFound),
		row("GET", "/server/{server}/cancellation", 200, (*call).getCancellation, codeServerNotFound),
		row("POST", "/server/{server}/cancellation", 200, (*call).cancelServer, codeInvalid, codeServerNotFound, codeConflict, codeReserveLocation, codeInternal),
		row("DELETE", "/server/{server}/cancellation", 200, (*call).keepServer, codeServerNotFound, codeConflict, codeInternal),
	}
}

func resetOperations() []operation {
	return []operation{
		row("GET", "/reset", 500, (*call).listResets, codeNotFound),
		row("GET", "/reset/{server}", 500, (*call).getReset, codeServerNotFound, codeResetUnavailable),
		row("POST", "/reset/{server}", 50, (*call).reset, codeInvalid, codeServerNotFound, codeResetUnavailable, codeResetManual, codeResetFailed),
	}
}

func failoverOperations() []operation {
	return []operation{
		row("GET", "/failover", 100, (*call).listFailovers, codeNotFound),
		row("GET", "/failover/{ip}", 100, (*call).getFailover, codeNotFound),
		row("POST", "/failover/{ip}", 50, (*call).routeFailover, codeInvalid, codeNotFound, codeFailoverServer, codeFailoverRouted, codeFailoverLocked, codeFailoverFailed, codeFailoverNotComplete),
		row("DELETE", "/failover/{ip}", 50, (*call).unrouteFailover, codeNotFound, codeFailoverLocked, codeFailoverFailed, codeFailoverNotComplete),
	}
}

func vSwitchOperations() []operation {
	return []operation{
		row("GET", "/vswitch", 500, (*call).listVSwitches),
		row("POST", "/vswitch", 100, (*call).createVSwitch, codeInvalid, codeVSwitchLimit),
		row("GET", "/vswitch/{id}", 500, (*call).getVSwitch, codeNotFound),
		row("POST", "/vswitch/{id}", 100, (*call).updateVSwitch, codeInvalid, codeNotFound, codeVSwitchInProcess, codeVLANNotUnique),
		row("DELETE", "/vswitch/{id}", 100, (*call).cancelVSwitch, codeInvalid, codeNotFound, codeConflict),
		row("POST", "/vswitch/{id}/server", 100, (*call).addServers, codeInvalid, codeNotFound, codeServerNotFound, codeVSwitchUnavailable,
			codeVSwitchInProcess, codeVLANNotUnique, codeVSwitchServers, codeServerVSwitches),
		row("DELETE", "/vswitch/{id}/server", 100, (*call).removeServers, codeInvalid, codeNotFound, codeServerNotFound, codeVSwitchInProcess),
	}
}
