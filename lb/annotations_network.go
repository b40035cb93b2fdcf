package lb

func networkAnnotations() []Annotation {
	return []Annotation{
		{
			Name: annotationPrivateIP, Type: "boolean", Range: "true, false",
			Default: "false", Effect: "Reaches nodes at their address in the configured network. A load balancer that was taken over goes on to reach them as it did until this is set.",
			set: boolean(func(s *settings) *bool { return &s.usePrivateIP }),
		},
		{
			Name: HetznerPrefix + "disable-private-ingress", Type: "boolean", Range: "true, false",
			Default: "false", Effect: "Keeps the load balancer's address in the network out of the Service's status.",
			set: boolean(func(s *settings) *bool { return &s.privateOff }),
		},
		{
			Name: annotationPublicOff, Type: "boolean", Range: "true, false",
			Default: "false", Effect: "Switches the load balancer's public interface off. Needs use-private-ip.",
			set: boolean(func(s *settings) *bool { return &s.publicOff }),
		},
		{
			Name: annotationIPv6Off, Type: "boolean", Range: "true, false",
			Default: "false", Effect: "Keeps the load balancer's IPv6 address out of the Service's status. With false, it is shown also for a Service whose ipFamilies are IPv4 alone.",
			set: func(s *settings, value string) error {
				s.ipv6Set = true
				return boolean(func(s *settings) *bool { return &s.ipv6Off })(s, value)
			},
		},
		{
			Name: annotationPrivateIPv4, Type: "address", Range: "an IPv4 address of the network that nobody has",
			Default: "the cloud's choice", Effect: "Address of the load balancer in the network. Another one than it has takes it out of the network for seconds; removing the annotation leaves the address.",
			set: privateAddress, idle: noNetwork,
		},
		{
			Name: annotationPrivateRange, Type: "prefix", Range: "the IPv4 range of a subnet of the network",
			Default: "none", Effect: "Subnet in which the load balancer gets its address. Another one than it is in takes it out of the network for seconds; removing the annotation leaves the address.",
			set: privateSubnet, idle: noNetwork,
		},
	}
}

func noNetwork(s settings) string {
	if !s.attached {
		return "no network is configured: remove the annotation, or configure the network"
	}
	return ""
}
