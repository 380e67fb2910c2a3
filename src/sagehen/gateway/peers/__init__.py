"""Requests that cross machines: links between the gateways of a cluster's nodes."""
