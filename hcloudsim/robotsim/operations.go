package robotsim

import "slices"

// Operation is one row of what is simulated.
type Operation struct {
	Method string
	Path   string // with {names} where values stand, as http.ServeMux has them
	// Quota is how often it may be asked for in an hour.
	Quota int
	// Errors are the codes that the documentation lists for it. Every operation
	// also answers UNAUTHORIZED, RATE_LIMIT_EXCEEDED, and 503 in a maintenance.
	Errors []string
}

// Name is what quotas and faults call the operation: "GET /server".
func (o Operation) Name() string { return o.Method + " " + o.Path }

// operation is one row of the web service's surface.
type operation struct {
	Operation
	do endpoint
}

// Operations is everything that is simulated.
func Operations() []Operation {
	var all []Operation
	for _, op := range operations() {
		all = append(all, op.Operation)
	}
	return all
}

// Unreachable are errors that the simulator never finds a reason for: they are
// failures inside of the service, and come by an injected fault.
func Unreachable() []string {
	return []string{codeInternal, codeResetFailed, codeFailoverNotComplete}
}

// operations is the whole surface: what is not here is not simulated, and
// answers 404.
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
