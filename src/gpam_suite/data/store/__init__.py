"""Files from elsewhere and folders of finished work: download, unpack, stages."""
