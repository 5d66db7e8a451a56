"""Samples out of live MQTT traffic, for calibration and evaluation.

plan      a configuration and what is asked for → topic and source
source    one message → samples: the windows a stream cuts, or the arrays a request carries
keep      which samples are kept, within bounds
recorder  the parts together, on the transport's thread
npzfile   samples → a .npz, and back
output    the file to be: locked, and there whole or not at all
"""
