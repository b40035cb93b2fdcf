package robot

import (
	"fmt"
	"net/http"
)

// operation is what may be asked for, and how often by a run: a quarter of its quota for an hour at
// most.
type operation struct {
	method, path string
	most         int
}

func (o operation) name() string { return o.method + " " + o.path }

// The operations in use. The documented quotas are 200 for /server, 500 for reading vSwitches and
// 100 for changing them (https://robot.hetzner.com/doc/webservice/en.html).
var (
	listServers   = operation{http.MethodGet, "/server", 10}
	listVSwitches = operation{http.MethodGet, "/vswitch", 60}
	getVSwitch    = operation{http.MethodGet, "/vswitch/{id}", 125}
	createVSwitch = operation{http.MethodPost, "/vswitch", 2}
	cancelVSwitch = operation{http.MethodDelete, "/vswitch/{id}", 20}
	addServer     = operation{http.MethodPost, "/vswitch/{id}/server", 5}
	removeServer  = operation{http.MethodDelete, "/vswitch/{id}/server", 20}
)

// OverBudgetError says that a request was not sent, because the account's other programs need what
// is left of an operation's quota.
type OverBudgetError struct{ Operation string }

func (e *OverBudgetError) Error() string {
	return fmt.Sprintf("%s: a run uses no more of its quota for an hour; try again in an hour", e.Operation)
}
