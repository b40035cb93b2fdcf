package robotsim

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
	return each(operations(), func(op operation) Operation { return op.Operation })
}

// Unreachable returns the codes of internal failures and of a limit that differs between accounts,
// which occur only as injected faults.
func Unreachable() []string {
	return []string{codeVSwitchLimit, codeResetFailed, codeFailoverNotComplete}
}

// operations returns all simulated operations. Other operations return 404.
func operations() []operation {
	row := func(method, path string, quota int, do endpoint, errors ...string) operation {
		return operation{Operation{method, path, quota, errors}, do}
	}
	return []operation{
		row("GET", "/server", 200, (*call).listServers, codeServerNotFound),
		row("GET", "/server/{server}", 200, on((*call).serverInPath, (*call).getServer),
			codeServerNotFound),
		row("POST", "/server/{server}", 200, on((*call).serverInPath, (*call).renameServer), codeInvalid,
			codeServerNotFound),

		row("GET", "/reset", 500, (*call).listResets, codeNotFound),
		row("GET", "/reset/{server}", 500, on((*call).resettable, (*call).getReset),
			codeServerNotFound, codeResetUnavailable),
		row("POST", "/reset/{server}", 50, on((*call).resettable, (*call).reset), codeInvalid,
			codeServerNotFound, codeResetUnavailable, codeResetManual, codeResetFailed),

		row("GET", "/failover", 100, (*call).listFailovers, codeNotFound),
		row("GET", "/failover/{ip}", 100, on((*call).failoverInPath, (*call).getFailover), codeNotFound),
		row("POST", "/failover/{ip}", 50, on((*call).failoverInPath, (*call).routeFailover), codeInvalid,
			codeNotFound, codeFailoverServer, codeFailoverRouted, codeFailoverLocked,
			codeFailoverFailed, codeFailoverNotComplete),
		row("DELETE", "/failover/{ip}", 50, on((*call).failoverInPath, (*call).unrouteFailover),
			codeNotFound, codeFailoverLocked, codeFailoverFailed, codeFailoverNotComplete),

		row("GET", "/vswitch", 500, (*call).listVSwitches),
		row("POST", "/vswitch", 100, (*call).createVSwitch, codeInvalid, codeVSwitchLimit),
		row("GET", "/vswitch/{id}", 500, on((*call).vSwitchInPath, (*call).getVSwitch), codeNotFound),
		row("POST", "/vswitch/{id}", 100, on((*call).vSwitchInPath, (*call).updateVSwitch), codeInvalid,
			codeNotFound, codeVSwitchInProcess, codeVLANNotUnique),
		row("DELETE", "/vswitch/{id}", 100, on((*call).vSwitchInPath, (*call).cancelVSwitch), codeInvalid,
			codeNotFound, codeConflict),
		row("POST", "/vswitch/{id}/server", 100, on((*call).vSwitchInPath, (*call).addServers),
			codeInvalid, codeNotFound, codeServerNotFound, codeVSwitchUnavailable, codeVSwitchInProcess,
			codeVLANNotUnique, codeVSwitchServers, codeServerVSwitches),
		row("DELETE", "/vswitch/{id}/server", 100, on((*call).vSwitchInPath, (*call).removeServers),
			codeInvalid, codeNotFound, codeServerNotFound, codeVSwitchInProcess),
	}
}
