// Package conformance holds the simulator to Hetzner's own description of the
// API: every operation that it has is driven through hcloud-go and by raw HTTP,
// and each request and reply is validated against the description. Where
// hcloud-go is newer than the description, or the description contradicts
// itself, a table says so, with the reason.
//
// It has tests only. The description (OpenAPI, JSON) is not part of the
// project: the environment variable UNDERLAY_CLOUD_SPEC names the file. Where
// CI is set, it must.
package conformance
