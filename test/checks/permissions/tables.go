package main

import (
	"github.com/underlay-ccm/underlay/internal/directory"
	"github.com/underlay-ccm/underlay/test/checks/rbac"
)

const (
	ccm    = "system:serviceaccount:kube-system:underlay-ccm"
	agent  = "system:serviceaccount:kube-system:underlay-agent"
	reader = "system:serviceaccount:kube-system:underlay-reader"
	tries  = "system:serviceaccount:kube-system:underlay-connectivity"
)

// often is more control planes than a rare use reaches by chance: a permission used on as many is
// used in every run.
const often = 15

// provocation is a request that a test sends so that it is forbidden.
type provocation struct {
	pkg, test, user string
	requested       rbac.Permission // without namespace and name
}

type tables struct {
	programs map[string]string      // the program of each account
	suites   map[string]int         // how many control planes a package starts at least, and stops
	rare     map[grant]string       // permissions that a run may leave unused, with the reason
	provoked map[provocation]string // requests that are forbidden on purpose, with the reason
	restarts map[string]string      // tests in which granted permissions are denied briefly
}

func ourTables() tables {
	return tables{
		programs: map[string]string{ccm: "underlay-ccm", agent: "underlay-agent", reader: "underlayctl", tries: "underlayctl"},
		suites: map[string]int{
			"cmd/underlay-agent":        1,
			"cmd/underlayctl":           1,
			"test/testenv/controlplane": 6,
			"test/demo":                 1,
			"test/checks/deploy":        3,
			"test/e2e":                  28,
			"test/e2e/packets":          4,
			"test/testenv/kubelet":      2,
		},
		rare: map[grant]string{
			{tries, rbac.Permission{Verb: "get", Resource: "pods/log", Namespace: "underlay-connectivity"}}:                                            "in the namespaces of the tests there is no kubelet, and logs are served beside the API server",
			{ccm, rbac.Permission{Verb: "list", Resource: "services"}}:                                                                                 "a cache begins with a streaming watch, and lists only where the API server doesn't offer that",
			{ccm, rbac.Permission{Verb: "list", Resource: "endpointslices.discovery.k8s.io"}}:                                                          "as with services",
			{ccm, rbac.Permission{Verb: "list", Resource: "configmaps", Namespace: directory.Namespace}}:                                               "as with services",
			{ccm, rbac.Permission{Verb: "list", Resource: "servicecidrs.networking.k8s.io"}}:                                                           "as with services",
			{ccm, rbac.Permission{Verb: "patch", Resource: "events"}}:                                                                                  "only an Event that repeats itself is patched",
			{ccm, rbac.Permission{Verb: "get", Resource: "validatingadmissionpolicies.admissionregistration.k8s.io", Name: "underlay-podcidrs"}}:       "only where another allocator is seen at work",
			{ccm, rbac.Permission{Verb: "get", Resource: "validatingadmissionpolicybindings.admissionregistration.k8s.io", Name: "underlay-podcidrs"}}: "only where another allocator is seen at work",
			{agent, rbac.Permission{Verb: "list", Resource: "networkpolicies.networking.k8s.io"}}:                                                      "as with services",
			{agent, rbac.Permission{Verb: "list", Resource: "pods"}}:                                                                                   "as with services",
			{agent, rbac.Permission{Verb: "list", Resource: "namespaces"}}:                                                                             "as with services",
			{agent, rbac.Permission{Verb: "patch", Resource: "events", Namespace: "default"}}:                                                          "only an Event that repeats itself is patched",
		},
		provoked: map[provocation]string{
			{"cmd/underlay-agent", "TestLifeOfAnAgent", agent, rbac.Permission{Verb: "patch", Resource: "nodes"}}:                    "an agent's token can't change labels",
			{"test/checks/deploy", "TestAgentChangesItsConditionsAlone", agent, rbac.Permission{Verb: "patch", Resource: "nodes"}}:   "an agent's token changes nothing without the status subresource",
			{"test/checks/deploy", "TestAgentChangesItsConditionsAlone", agent, rbac.Permission{Verb: "create", Resource: "events"}}: "an agent's Events lie in the namespace default",
			{"cmd/underlayctl", "TestCommandsShowTheCluster", reader, rbac.Permission{Verb: "get", Resource: "secrets"}}:             "who may only look is not shown the cloud's token",
		},
		restarts: map[string]string{
			"TestAPIServerRestartedWhileAllocating": "an API server that has just begun forbids everything until it has read the roles",
		},
	}
}
