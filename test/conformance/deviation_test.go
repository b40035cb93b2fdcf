package conformance_test

import "strings"

// How requests reach the simulator.
const (
	byClient = "hcloud-go"
	byHand   = "raw HTTP"
)

// deviation is a difference from the description that is meant to be. Where
// a field is empty or ends in *, it fits whatever comes.
type deviation struct {
	operation string
	way       string
	side      string
	at        string
	rule      string
}

func (d deviation) matches(operation, way string, f finding) bool {
	fit := func(pattern, text string) bool {
		start, open := strings.CutSuffix(pattern, "*")
		return pattern == "" || pattern == text || (open && strings.HasPrefix(text, start))
	}
	return fit(d.operation, operation) && fit(d.way, way) && fit(d.side, f.side) && fit(d.at, f.at) &&
		fit(d.rule, f.rule)
}

// deviations is the table: what differs, and why that is right.
func deviations() map[deviation]string {
	return map[deviation]string{
		{"POST /servers", byClient, "request", "/ssh_keys/*", "type"}:                                          "hcloud-go sends IDs as numbers, the description has texts: both are taken",
		{"POST /servers", byClient, "request", "/server_type", "type"}:                                         "hcloud-go sends IDs as numbers, the description has texts: both are taken",
		{"POST /load_balancers/{id}/actions/change_type", byClient, "request", "/load_balancer_type", "type"}:  "hcloud-go sends IDs as numbers, the description has texts: both are taken",
		{"POST /servers/{id}/actions/rebuild", byClient, "request", "/image", "type"}:                          "hcloud-go sends IDs as numbers, the description has texts: both are taken",
		{"POST /servers/{id}/actions/attach_iso", byClient, "request", "/iso", "type"}:                         "hcloud-go sends IDs as numbers, the description has texts: both are taken",
		{"POST /servers/{id}/actions/create_image", byClient, "request", "/description", "type"}:               "hcloud-go sends null without a description",
		{"DELETE /load_balancers/{id}", "", "response", "", "status is not supported"}:                         "answers 201 with an action since hcloud-go v2.52; the description still has 204",
		{"", "", "response", "/primary_ip*", "enum"}:                                                           "assignee_type is load_balancer or unassigned too, as hcloud-go v2.52 and its changelog have it; the description has servers alone",
		{"POST /load_balancers/{id}/actions/add_service", byClient, "request", "/", "required"}:                "hcloud-go leaves out what has a default, the description demands it",
		{"POST /load_balancers/{id}/actions/update_service", byClient, "request", "/health_check", "required"}: "an update holds only what changes, as the API's own text says; its schema is that of a whole health check",
	}
}

// unreachable reports whether hcloud-go has no method for an operation, or a deprecated one: an
// action's ID is enough, and data centers are about to be removed.
func unreachable(operation string) bool {
	return strings.HasSuffix(operation, "/{action_id}") || strings.HasPrefix(operation, "GET /datacenters")
}
