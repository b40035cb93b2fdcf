package config

import "strconv"

// variable is one that the Hetzner cloud controller manager reads and
// Underlay does not.
type variable struct {
	name, why string
	// quiet is the boolean that asks for nothing but what Underlay does
	// anyway; nil: any value is worth a warning.
	quiet *bool
}

// foreign lists the variables whose users would otherwise wait in vain for an
// effect. Values are never repeated: some are secrets.
func foreign() []variable {
	yes, no := true, false
	const cache = "one list of the servers serves all controllers, and is read again when it has to be"
	return []variable{
		{name: "HCLOUD_DEBUG", quiet: &no, why: "there is no dump of API traffic"},
		{name: "HCLOUD_METRICS_ENABLED", why: "metrics are always served on the secure port"},
		{name: "HCLOUD_METRICS_ADDRESS", why: "metrics are always served on the secure port"},
		{name: "HCLOUD_NETWORK_DISABLE_ATTACHED_CHECK", quiet: &yes, why: "whether the own server is attached to the network is never checked; each Node's attachment is"},
		{name: "HCLOUD_INSTANCES_ZONE_LABEL_ENABLED", quiet: &yes, why: "every Node gets the label of its zone"},
		{name: "HCLOUD_SERVER_CACHE_MODE", why: cache},
		{name: "HCLOUD_SERVER_CACHE_MAX_AGE", why: cache},
		{name: "ROBOT_CACHE_TIMEOUT", why: "one list of the dedicated servers is kept for five minutes, and read again sooner when it has to be"},
		{name: "ROBOT_RATE_LIMIT_WAIT_TIME", why: "requests are counted and wait for their quota; after a refusal they rest for a minute, and longer each time"},
	}
}

func (r *resolver) foreignVariables() {
	for _, v := range foreign() {
		text := r.getenv(v.name)
		if text == "" {
			continue
		}
		if on, err := strconv.ParseBool(text); err == nil && v.quiet != nil && on == *v.quiet {
			continue
		}
		r.warnings = append(r.warnings, Warning{Field: v.name, Problem: "has no effect: " + v.why})
	}
}
